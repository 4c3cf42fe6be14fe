"""A Pyro program written by the user, as a model that ``ppgp.fit`` accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import Module

from ..data.training_data import same_value
from ..density.handlers import (
    Run,
    check_unweighted,
    entries_of_data,
    numbers_seen,
    over_draws,
    quietly,
    site_log_prob,
)
from ..errors import DataError, NotApplicable
from ..priors import Param, Site
from ..runtime.threads import ELEMENT
from .base import Model
from .program_predictions import Same, inferred_discrete, predictive_distributions

Theta = Mapping[str, Tensor]
SCALAR = (bool, int, float, str)
SEEN = "\0seen"  # suffix of the entry that marks which numbers of a site a mask keeps


@dataclass(frozen=True)
class Program(Model):
    """A Pyro program ``function(**arguments)``, whose arguments ``ppgp.fit`` takes as a dict.

    ``ppgp.fit`` makes it of a program of Pyro (Bingham et al. 2019). Its sites and plates have the
    names that the program gives them: ``posterior.draws`` is ``{site: [chain, draw, *event]}``.
    Nothing is standardised, so that draws are in the units of the program.

    Args:
        function: The Pyro program.

    Raises:
        NotApplicable: From ``fit``, if the function cannot be called, or for a latent site that is
            discrete and of infinite support.
        DataError: From ``fit``, if the program does not have an argument, or if one that it
            requires is missing.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> from ppgp import inference
        >>> def coin(heads=None):
        ...     p = pyro.sample("p", dist.Beta(2.0, 2.0))
        ...     with pyro.plate("tosses", 10):
        ...         return pyro.sample("heads", dist.Bernoulli(p), obs=heads)
        >>> heads = torch.tensor([1.0] * 7 + [0.0] * 3)
        >>> posterior = ppgp.fit(coin, {"heads": heads}, inference.MAP(), progress=False)
        >>> posterior.model.function is coin
        True
        >>> posterior.theta["p"].numpy().round(3)  # the mode of Beta(9, 5) is 8 / 12
        array([0.667], dtype=float32)
        >>> posterior.predict(heads=None).probabilities.shape  # [n, classes]
        torch.Size([10, 2])
    """

    function: Callable[..., Any]
    scales = ""

    def sites(self, d: int) -> dict[str, Site | Param]:
        """Return {}: the sites are not known without a run of the program."""
        return {}

    # the methods below take the arguments of the program in place of X and a Dataset

    def work(self, n: int, d: int = 1) -> float:
        """Return the approximate number of multiplications in one run.

        Args:
            n: How many numbers the arguments hold, in rows of d.
            d: How many numbers are in a row.
        """
        return ELEMENT * n * d

    def model(self, **arguments: Any) -> Any:  # type: ignore[override] # its own arguments
        return self.function(**arguments)

    def _latents(self, theta: Theta) -> dict[str, Tensor]:
        if not theta:
            raise NotApplicable(
                "a program with uncertain sites", "none", "add a pyro.sample without obs"
            )
        return dict(theta)

    def log_likelihood(  # type: ignore[override] # its own arguments
        self, theta: Theta, data: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Return the pointwise log likelihood.

        Args:
            theta: {site: [draw, *event]}.
            data: The arguments of the fit.

        Returns:
            {observed site: log density, [draw, ...]}, without the entries that a mask leaves out
            or that the program computes from latent sites.

        Raises:
            NotApplicable: If the program has latent sites that are not in theta (discrete ones
                that were summed out), if it takes rows at random, if rows are weighted by a scale,
                or if its masks depend on latent sites.
        """
        latents = self._latents(theta)
        first = {name: value[0] for name, value in latents.items()}
        with quietly():
            data_entries = entries_of_data(lambda: self.function(**data), first)

        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            with Run(values) as run:
                self.function(**data)
            others = [name for name in run.latents() if name not in values]
            if others:
                raise NotApplicable(
                    "a program whose latent sites were all drawn",
                    f"{', '.join(others)} summed out",
                    "write that sum into the distribution of y (MixtureSameFamily)",
                )
            if run.subsampled:
                name, share = next(iter(run.subsampled.items()))
                raise NotApplicable(
                    "a program that sees all its rows",
                    f"a plate {name!r} that takes {share} at random",
                    "leave subsample_size out",
                )
            log_densities = {}
            for name, s in run.observed().items():
                check_unweighted(name, s)
                seen = (numbers_seen(s) > 0) & data_entries[name]
                log_densities[name] = site_log_prob(s).expand(seen.shape).reshape(-1)
                log_densities[name + SEEN] = seen.reshape(-1)
            return log_densities

        with quietly():
            per_draw = over_draws(one, latents)
        return _without_masked(per_draw)

    def predict(  # type: ignore[override] # its own arguments
        self, theta: Theta, arguments: Mapping[str, Any], data: Mapping[str, Any], seed: int = 0
    ) -> dict[str, Distribution]:
        """Return the predictive distribution of every site that was not drawn.

        Discrete sites that were summed out are drawn given the data of the fit. Latent sites of
        single rows, in just the plates of y, are those of the fit if the arrays among the arguments
        are, and are drawn from their prior otherwise, as those of new rows. If a run draws random
        numbers, there are at least ``program_predictions.RUNS`` runs.

        Args:
            theta: {site: [draw, *event]}.
            arguments: Arguments of the prediction; one that is left out has its default, or None.
            data: The arguments of the fit.
            seed: Seed of the random numbers.

        Returns:
            {site: a distribution of batch [draw, n]}.

        Raises:
            NotApplicable: For an argument that the program does not have, if every site was drawn,
                or if new rows with latent sites of their own have observed ones.
        """
        defaults = self.arguments(data)
        unknown = set(arguments) - set(defaults)
        if unknown:
            raise NotApplicable(
                f"arguments among {sorted(defaults)}",
                f"{sorted(unknown)}",
                "use the program's own names",
            )
        full = {**defaults, **arguments}
        before = {**defaults, **data}
        others = [
            value
            for name, value in full.items()
            if value is not None and not same_value(value, before[name])
        ]
        same = Same(arguments=not others, arrays=all(isinstance(v, SCALAR) for v in others))
        with quietly(), torch.no_grad():
            predictive = predictive_distributions(
                lambda: self.function(**full),
                lambda: self.function(**data),
                same,
                self._latents(theta),
                seed,
            )
        if not predictive:
            raise NotApplicable(
                "a site of the program that was not drawn, to be predicted",
                "none",
                "leave the observed argument out",
            )
        return predictive

    def discrete_given_data(self, theta: Theta, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return one draw, given the data, of each discrete site that was summed out.

        Args:
            theta: {site or param: [draw, *event]}.
            data: The arguments of the fit.

        Returns:
            {discrete site: [draw, ...]}.
        """
        with quietly(), torch.no_grad():
            return inferred_discrete(lambda: self.function(**data), dict(theta))

    def check_arguments(self, data: Mapping[str, Any]) -> None:
        """Check the arguments of a fit against the signature of the program.

        Raises:
            DataError: If the program does not have an argument, or if one that it requires is
                missing.
        """
        try:
            signature = self._signature()
        except (TypeError, ValueError):  # a callable without a signature
            return
        try:
            signature.bind(**data)
        except TypeError:
            wanted = ", ".join(signature.parameters) or "none"
            got = ", ".join(map(str, data)) or "none"
            raise DataError(
                f"the program's arguments: {wanted}", got, "use the program's own names"
            ) from None

    def _signature(self) -> inspect.Signature:
        """Return the signature of the program; a module has that of its ``forward``."""
        if isinstance(self.function, Module):
            return inspect.signature(self.function.forward)
        return inspect.signature(self.function)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the arguments that have no default."""
        parameters = self._signature().parameters.values()
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return tuple(p.name for p in parameters if p.default is p.empty and p.kind not in several)

    def arguments(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return {argument of the program: its default, or None}.

        If the program takes any keyword, the arguments in ``data`` are also included.
        """
        parameters = self._signature().parameters.values()
        arguments: dict[str, Any] = {}
        if any(p.kind == p.VAR_KEYWORD for p in parameters):
            arguments = dict.fromkeys(data)
        for p in parameters:
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                arguments[p.name] = None
                if p.default is not p.empty:
                    arguments[p.name] = p.default
        return arguments


def _without_masked(per_draw: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the entries of each site that no mask leaves out.

    Raises:
        NotApplicable: If a mask differs between draws.
    """
    unmasked = {}
    for name, value in per_draw.items():
        if name.endswith(SEEN):
            continue
        seen = per_draw[name + SEEN]
        if bool((seen != seen[0]).any()):
            raise NotApplicable(
                "a mask that is the same at every draw",
                f"one at {name!r} that is not",
                "fix which rows count",
            )
        if bool(seen[0].any()):
            unmasked[name] = value if bool(seen[0].all()) else value[:, seen[0]]
    return unmasked
