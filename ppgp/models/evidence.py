"""The log evidence of a model at given values of its hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyro
import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..errors import DataError, NotApplicable, SettingError, UnknownName, an
from ..priors import Param, Site
from ..runtime.process_locks import one_at_a_time

__all__ = ["log_evidence"]


def log_evidence(self: Any, data: Dataset, values: Mapping[str, Any] | None = None) -> float:
    """Return log p(y given values of the hyperparameters), in the units of the data.

    Priors do not enter it, and nothing is standardised or fitted: it is the log marginal likelihood
    that maximum likelihood of type II maximises. Rasmussen & Williams (2006), equation 5.8, for a
    Gaussian process. A drift of Kriging and Vecchia is integrated out under a flat prior on the
    units of y. Where a likelihood is not Gaussian, f is integrated out by the approximation of the
    model. Linear models have all their coefficients among the values.

    Args:
        self: The model.
        data: The rows, in the units of the data.
        values: ``{site: value}`` for every site with a prior, such as ``{"kernel.lengthscale": 2.0,
            "kernel.variance": 1.0, "noise": 0.1}``, in the units of the data: the names are those
            of ``posterior.draws``. ``posterior.draws_in("data")`` of a single draw is such a
            dictionary, save that one lengthscale of standardised columns is one per column there,
            which ``ARD`` takes. Sites that the recipe fixes to numbers have these.

    Returns:
        The log density of y.

    Raises:
        DataError: If ``data`` is no Dataset, or does not suit the model.
        UnknownName: If the model has no site of a name.
        SettingError: If a value is missing, of another shape, or not allowed.
        NotApplicable: If the model does not know its evidence, such as SGPR, whose density is a
            lower bound, and SVGP and networks, whose params are optimised.
    """
    if not isinstance(data, Dataset):
        wanted = f"a Dataset for {type(self).__name__}"
        raise DataError(wanted, an(type(data).__name__), "use ppgp.Dataset(X, y)")
    recipe = self.given or self
    if recipe.density_at_numbers != "log_evidence":
        raise _unknown(self, "a bound on it, or another density")
    prepared = recipe.prepare(data)
    sites = prepared.sites_at(data.d)
    if any(isinstance(one, Param) for one in sites.values()):
        raise _unknown(self, "params that a fit optimises")
    free = {name: s for name, s in sites.items() if isinstance(s, Site) and not s.fixed}
    if free.keys() & set(prepared.latent_values):
        raise _unknown(self, "f as a site, which only draws integrate out")
    chosen = _checked(dict(values or {}), free, data.X)
    arguments, named = data.passed()

    def is_data(name: str, node: Any) -> bool:
        return name not in chosen and bool(node["is_observed"])

    with one_at_a_time(), torch.no_grad(), pyro.validation_enabled(False):
        conditioned = pyro.poutine.condition(prepared.model, data=chosen)
        trace = pyro.poutine.trace(conditioned).get_trace(*arguments, **named)
        trace.compute_log_prob(is_data)
    observed = [n for n in trace.nodes.values() if "log_prob_sum" in n]
    return float(sum(node["log_prob_sum"] for node in observed))


def _unknown(model: Any, what: str) -> NotApplicable:
    """Return the error of a model that does not know its evidence."""
    do = "use GP, StateSpaceGP or Vecchia, or posterior.log_evidence of a fit by Laplace"
    wanted = "a model whose log evidence is known in closed form"
    return NotApplicable(wanted, f"{type(model).__name__}, which has {what}", do)


def _checked(values: dict[str, Any], free: Mapping[str, Site], like: Tensor) -> dict[str, Tensor]:
    """Return the values as tensors of the shapes of their sites."""
    for name in values:
        if name not in free:
            raise UnknownName("site with a prior", name, free)
    missing = [name for name in free if name not in values]
    if missing:
        got = f"none for {', '.join(missing)}"
        raise SettingError("a value for every site with a prior", got, "add it to the values")
    return {name: _value(name, values[name], site, like) for name, site in free.items()}


def _value(name: str, value: Any, site: Site, like: Tensor) -> Tensor:
    """Return a value as a tensor of the shape of its site; one number stands for all entries."""
    do = f"pass a number, or an array of shape {list(site.shape)}"
    try:
        tensor = torch.as_tensor(value, dtype=like.dtype, device=like.device).detach()
    except (TypeError, ValueError, RuntimeError):
        got = f"{an(type(value).__name__)} for {name}"
        raise SettingError("numbers as values", got, do) from None
    size = torch.Size(site.shape).numel()
    if tensor.numel() not in (1, size):
        got = f"shape {list(tensor.shape)} for {name}"
        raise SettingError(f"one number, or shape {list(site.shape)}", got, do)
    tensor = tensor.reshape(-1).expand(size).reshape(site.shape).clone()
    allowed = torch.isfinite(tensor).all() and (not site.positive or (tensor > 0).all())
    if not bool(allowed):
        wanted = f"finite{' positive' * site.positive} numbers for {name}"
        raise SettingError(wanted, str(tensor.tolist()), "change the value")
    return tensor
