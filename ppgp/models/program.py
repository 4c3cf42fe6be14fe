"""Any Pyro program of the user, wrapped so that every verb takes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import DataError, NotApplicable
from ..numerics.threads import ELEMENT
from ..priors import Param, Site
from ..target.handlers import Run, numbers_seen, over_draws, quietly, site_log_prob
from .base import Model
from .program_predictions import laws

Theta = Mapping[str, Tensor]
SEEN = "\0seen"


@dataclass(frozen=True)
class Program(Model):
    """A Pyro program ``function(**arguments)``; the arguments are given to ``ppgp.fit`` as a dict.

    Made by ``ppgp.fit``; site names and plates are the program's own. Nothing is standardised.
    """

    function: Callable[..., Any]
    scales = ""

    def sites(self, d: int) -> dict[str, Site | Param]:
        """None that are known without a run."""
        return {}

    def work(self, numbers: int) -> float:
        """About how many multiplications a run takes on arguments of so many numbers."""
        return ELEMENT * numbers

    def model(self, **arguments: Any) -> Any:
        return self.function(**arguments)

    def _latents(self, theta: Theta) -> dict[str, Tensor]:
        if not theta:
            raise NotApplicable(
                "a program with uncertain sites", "none", "add a pyro.sample without obs"
            )
        return dict(theta)

    def log_likelihood(self, theta: Theta, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """{observed site: log density, [draw, ...]}, without the places that a mask leaves out.

        Raises:
            NotApplicable: if the program has latent sites beside theta (discrete ones that were summed out), takes rows at random,
                or masks depend on latent sites.
        """

        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            with Run(values) as run:
                self.function(**data)
            others = [name for name in run.latents() if name not in values]
            if others:
                raise NotApplicable(
                    "a program whose latent sites were all drawn",
                    f"{', '.join(others)} summed out",
                    "write that sum into the law of y (MixtureSameFamily)",
                )
            if run.subsampled:
                name, share = next(iter(run.subsampled.items()))
                raise NotApplicable(
                    "a program that sees all its rows",
                    f"a plate {name!r} that takes {share} at random",
                    "leave subsample_size out",
                )
            found = {}
            for name, s in run.observed().items():
                seen = numbers_seen(s) > 0
                found[name] = site_log_prob(s).expand(seen.shape).reshape(-1)
                found[name + SEEN] = seen.reshape(-1)
            return found

        with quietly():
            found = over_draws(one, self._latents(theta))
        return _without_masked(found)

    def predict(
        self, theta: Theta, arguments: Mapping[str, Any], data: Mapping[str, Any], seed: int = 0
    ) -> dict[str, Distribution]:
        """{site: its law} for every site that was not drawn; arguments left out have their default, or are None.

        A discrete site that was summed out is drawn given ``data``, the arguments of the fit. Where a run draws something, there are
        at least ``replay.RUNS`` of them.
        """
        wanted = self.arguments(data)
        unknown = set(arguments) - set(wanted)
        if unknown:
            raise NotApplicable(
                f"arguments among {sorted(wanted)}",
                f"{sorted(unknown)}",
                "use the program's own names",
            )
        full = {**wanted, **arguments}
        before = {**wanted, **data}
        same_rows = all(
            value is None or same_value(value, before[name]) for name, value in full.items()
        )
        with quietly(), torch.no_grad():
            found = laws(
                lambda: self.function(**full),
                lambda: self.function(**data),
                same_rows,
                self._latents(theta),
                seed,
            )
        if not found:
            raise NotApplicable(
                "a site of the program that was not drawn, to be predicted",
                "none",
                "leave the observed argument out",
            )
        return found

    def check_arguments(self, data: Mapping[str, Any]) -> None:
        """Raises DataError for arguments that the program has not, and for those that it needs."""
        try:
            parameters = inspect.signature(self.function)
        except (TypeError, ValueError):  # a callable that does not say
            return
        try:
            parameters.bind(**data)
        except TypeError:
            wanted = ", ".join(parameters.parameters) or "none"
            got = ", ".join(map(str, data)) or "none"
            raise DataError(
                f"the program's arguments: {wanted}", got, "use the program's own names"
            ) from None

    def arguments(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """{argument of the program: its default, or None}; where it takes any, those of ``data`` too."""
        parameters = inspect.signature(self.function).parameters.values()
        free = any(p.kind == p.VAR_KEYWORD for p in parameters)
        own = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return {
            **(dict.fromkeys(data) if free else {}),
            **{p.name: None if p.default is p.empty else p.default for p in own},
        }


def same_value(a: Any, b: Any) -> bool:
    """Whether two arguments are the same: tensors and arrays by their numbers."""
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.device == b.device and bool((a == b).all())
    try:
        same = np.array_equal(np.asarray(a), np.asarray(b))
    except (TypeError, ValueError, RuntimeError):
        return False
    return bool(same)


def _without_masked(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The places of each site that are data.

    Raises:
        NotApplicable: where they are others at other draws.
    """
    kept = {}
    for name, value in found.items():
        if name.endswith(SEEN):
            continue
        seen = found[name + SEEN]
        if bool((seen != seen[0]).any()):
            raise NotApplicable(
                "a mask that is the same at every draw",
                f"one at {name!r} that is not",
                "fix which rows count",
            )
        if bool(seen[0].any()):
            kept[name] = value if bool(seen[0].all()) else value[:, seen[0]]
    return kept
