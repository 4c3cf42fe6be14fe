"""``load_posterior``, which reads what ``posterior.save`` wrote, and checks every field of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from pyro.infer import autoguide
from torch import Tensor, nn

from ..data.dataset import IdentityScaler
from ..data.stream.streamed_rows import SUMS as OF_STREAM
from ..data.training_data import TrainingData
from ..errors import StorageError, an
from ..networks import networks
from ..networks.linearised_networks import LINEARISED_AT
from ..priors import Param
from .files import encoding, storage
from .posterior import Posterior

SAME_RECIPE = "pass the recipe that was fitted"
#: modules of the classes that a file may name; imported by name, as some of them use this module
FAMILIES = (
    "data",
    "inference",
    "kernels",
    "networks",
    "learners",
    "likelihoods",
    "models",
    "models.means",
    "models.linear.multilevel",
    "models.linear.varying",
    "posterior",
    "priors",
)


def table() -> dict[str, type]:
    """Return every class that a file may name, by its name in a file."""
    families = [import_module(f"ppgp.{family}") for family in FAMILIES]
    members = [getattr(family, name) for family in families for name in family.__all__]
    return {encoding.class_name(member): member for member in members if isinstance(member, type)}


def load_posterior(path: str | Path, model: Any = None) -> Posterior:
    """Read a Posterior that ``posterior.save`` wrote.

    Args:
        path: The file.
        model: What a file cannot hold: the program, guide or torch module that the posterior was
            fitted with, or the recipe that contains this module or a class of the user's own;
            several as a tuple. (The weights are in the file.)

    Returns:
        The Posterior, with the same draws [chain, draw, *event] and params. It predicts in the
        units of the data, as the one that was saved.

    Raises:
        StorageError: If the file is missing, foreign or damaged; if it needs a program, a module
            or a user's class and ``model`` is not given; or if the module is not the one in the
            file.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [2.0, 0.0, -1.0])
        >>> posterior = ppgp.fit(models.GP(kernels.RBF()), data, inference.MAP(), progress=False)
        >>> path = posterior.save("posterior.ppgp")
        >>> again = ppgp.load_posterior(path)
        >>> again
        <Posterior of GP by MAP: 1 x 1 draws on the standardised scale, ... s>
        >>> bool(again.predict([[0.5]]).mean == posterior.predict([[0.5]]).mean)
        True
    """
    posterior, things = read(path, model)
    if not isinstance(posterior, Posterior):
        do = (
            "pass a file that posterior.save wrote; several outputs: ppgp.MultiPosterior.load; an "
            "average: ppgp.Average.load"
        )
        raise StorageError("a Posterior in the file", type(posterior).__name__, do)
    return ready(posterior, things)


def read(path: str | Path, model: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the record of a file, not yet checked, and the modules that ``model`` supplies."""
    classes, things = encoding.by_name(model)
    known = {**classes, **table()}
    guides = {name: getattr(autoguide, name) for name in autoguide.__all__}
    try:
        record = storage.load(path, known, {**guides, **things})
    except encoding.NotSupplied as error:
        if model is None:
            raise
        got = ", ".join(map(repr, things)) or an(type(model).__name__)
        raise encoding.NotSupplied(error.expected, got, error.do) from None
    return record, things


def ready(posterior: Posterior, things: Mapping[str, Any]) -> Posterior:
    """Return a posterior that was read, checked and connected with its recipe and its data."""
    try:
        _check_fields(posterior)
        if any(isinstance(thing, nn.Module) for thing in things.values()):
            _check_shapes(posterior)
        if posterior.recipe is not None:
            posterior.model.made_from(posterior.recipe, (posterior.data, posterior.scaler))
        return posterior
    except StorageError:
        raise
    except Exception as error:  # a recipe may raise anything on numbers that are not its own
        wanted = "a Posterior that fits its model"
        raise StorageError(wanted, storage.first_line(error), SAME_RECIPE) from None


def _check_fields(posterior: Posterior) -> None:
    """Check that the fields are those of one fit.

    Raises:
        StorageError: Naming the first field that is not.
    """
    for name, holds in _facts(posterior):
        if not holds:
            do = "it is damaged or foreign; save again"
            raise StorageError(f"{name} in the file", "something else", do)


def _facts(posterior: Posterior) -> Iterator[tuple[str, bool]]:
    """Yield (what a field has to be, whether it is)."""
    draws, data, recipe = posterior.draws, posterior.data, posterior.recipe
    tensors = {**posterior.params, **draws}
    shapes = {tuple(value.shape[:2]) for value in draws.values()}
    weights = sum(value.numel() for value in tensors.values())
    complete = all(len(shape) == 2 and min(shape) > 0 for shape in shapes)
    encoders = networks.instances_in((posterior.model, recipe), networks.Network)
    yield "tensors by site", all(isinstance(v, Tensor) for v in tensors.values())
    yield "draws [chain, draw, ...]", len(shapes) < 2 and complete
    yield "a Dataset or arguments", isinstance(data, TrainingData)
    yield "stats by name", all(isinstance(name, str) for name in posterior.stats)
    yield "seconds", isinstance(posterior.seconds, float | int)
    yield "sentences of warning", _is_tuple_of(posterior.warnings, str)
    yield "a Scaler of these columns", _scaler_fits(posterior)
    yield "all the weights of a network", all(_largest(e) <= weights for e in encoders)
    also_seen = _is_tuple_of(posterior.also_seen, TrainingData)
    yield "tables that the fit has seen besides", also_seen
    yield "a recipe of this model", recipe is None or type(recipe) is type(posterior.model)


def _is_tuple_of(value: object, kind: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, kind) for part in value)


def _scaler_fits(posterior: Posterior) -> bool:
    scaler, data = posterior.scaler, posterior.data
    if isinstance(scaler, IdentityScaler):
        return True
    if not data.is_table:
        return False
    parts = (scaler.x_mean, scaler.x_sd, scaler.y_mean, scaler.y_sd)
    return [part.shape for part in parts] == [(data.d,), (data.d,), (), ()]


def _largest(network: networks.Network) -> int:
    """Return a lower bound on the weights of the largest layer, without building the network."""
    sizes = [*getattr(network, "hidden", ()), *getattr(network, "channels", ())]
    sizes.append(getattr(network, "out", 1))
    return max((prod(pair) for pair in pairwise(sizes)), default=0)


def _check_shapes(posterior: Posterior) -> None:
    """Check the names and shapes of the weights of a module against those in the file.

    Raises:
        StorageError: Naming the first weight that differs.
    """
    if not posterior.data.is_table:  # the sites of a program are not known without a run
        return
    sites = posterior.model.sites(posterior.data.d)
    held = {name: tuple(value.shape) for name, value in posterior.params.items()}
    held |= {name: tuple(value.shape[2:]) for name, value in posterior.draws.items()}
    for name, site in sites.items():
        if site.fixed and not isinstance(site, Param):
            continue
        if held.get(name) != tuple(site.shape):
            got = "nothing of that name"
            if name in held:
                got = str(list(held[name]))
            wanted = f"{name} of shape {list(site.shape)} in the file"
            raise StorageError(wanted, got, SAME_RECIPE)
    around = {f"{LINEARISED_AT}.{name}" for name in sites}
    around |= {name for name in posterior.params if name.startswith(f"{OF_STREAM}.")}
    strange = [name for name in held if name not in sites and name not in around]
    if strange:
        wanted = "the weights of this module alone"
        raise StorageError(wanted, f"{strange[0]} too", SAME_RECIPE)
