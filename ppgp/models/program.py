"""Any Pyro program of the user, wrapped so that every verb takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ..errors import NotApplicable
from ..numerics import univariate
from ..numerics.threads import ELEMENT
from ..target.handlers import Run, over_draws, quietly, site_log_prob

Theta = Mapping[str, Tensor]


@dataclass(frozen=True)
class Program:
    """A Pyro program ``function(**arguments)``; the arguments are given to ``ppgp.fit`` as a dict.

    Made by ``ppgp.fit``; site names and plates are the program's own. Nothing is standardised.
    """

    function: Callable[..., Any]
    scales = ""
    guide = None

    def work(self, numbers: int) -> float:
        """About how many multiplications a run takes on arguments of so many numbers."""
        return ELEMENT * numbers

    def model(self, **arguments: Any) -> Any:
        return self.function(**arguments)

    def _latents(self, theta: Theta) -> dict[str, Tensor]:
        if not theta:
            raise NotApplicable("a program with uncertain sites", "none", "add a pyro.sample without obs")
        return dict(theta)

    def log_likelihood(self, theta: Theta, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """{observed site: log density, [draw, ...]}.

        Raises:
            NotApplicable: if the program has latent sites beside theta (discrete ones that were summed out).
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
            return {name: site_log_prob(s).reshape(-1) for name, s in run.observed().items()}

        with quietly():
            return over_draws(one, self._latents(theta))

    def predict(self, theta: Theta, **arguments: Any) -> dict[str, Distribution]:
        """{site: its law} for every site that was not drawn; arguments left out are None."""
        import inspect

        wanted = inspect.signature(self.function).parameters
        unknown = set(arguments) - set(wanted)
        if unknown:
            raise NotApplicable(f"arguments among {sorted(wanted)}", f"{sorted(unknown)}", "use the program's own names")
        full = {name: arguments.get(name, p.default if p.default is not p.empty else None) for name, p in wanted.items()}
        laws: dict[str, Distribution] = {}

        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            with Run(values) as run:
                self.function(**full)
            parts = {}
            for name, s in run.latents().items():
                if name not in values:
                    law = s["fn"].base_dist if isinstance(s["fn"], Independent) else s["fn"]
                    laws[name] = law
                    parts |= {f"{name}\0{k}": v for k, v in univariate.parameters(law).items()}
            return parts

        with quietly(), torch.no_grad():
            stacked = over_draws(one, self._latents(theta))
        if not laws:
            raise NotApplicable("an argument left out, so that its site is predicted", "all of them", "call predict without y")
        predicted = {}
        for name, law in laws.items():
            values = {k.split("\0")[1]: v for k, v in stacked.items() if k.split("\0")[0] == name}
            values = {k: v if v.ndim > 1 else v[:, None] for k, v in values.items()}
            predicted[name] = univariate.rebuilt(law, values)
        return predicted
