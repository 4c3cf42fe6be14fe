"""Sites and data drawn from a prior: of a model at inputs X, or of a user's program with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyro
from torch import Tensor

from ..data.dataset import Dataset
from ..errors import DataError, NotApplicable
from ..models import Model, Program
from ..priors import Flat, bare

TRIES = 100  # simulated data sets that a model may refuse in a row
Drawn = tuple[dict[str, Tensor], Any, Any]


@dataclass(frozen=True)
class OfModel:
    """A model of the zoo at inputs X."""

    model: Model
    X: Tensor

    def check(self) -> None:
        """Raises NotApplicable where a prior is Flat."""
        sites = self.model.sites(self.X.shape[1])
        _refuse(
            [
                name
                for name, site in sites.items()
                if isinstance(bare(getattr(site, "prior", None)), Flat)
            ]
        )

    def drawn(self) -> Drawn:
        """Sites and y, the model made ready for them, and its Dataset.

        Data that the model refuses (labels of one class) are drawn again: a condition on y alone leaves p(theta given y) as it is.
        """
        model: Any = self.model
        if getattr(model, "mean", 0.0) is None:  # y is drawn about 0, which the fit then may know
            model = replace(model, mean=0.0)
        refused: DataError | None = None
        for _ in range(TRIES):
            values = {name: node["value"] for name, node in _sites(model.model, self.X).items()}
            try:
                return (
                    values,
                    model.prepare(Dataset(self.X, values["y"])),
                    Dataset(self.X, values["y"]),
                )
            except DataError as error:
                refused = error
        assert refused is not None
        raise refused


@dataclass(frozen=True)
class OfProgram:
    """A user's program; the sites that bear the name of an argument left out are its data."""

    program: Callable[..., Any]
    arguments: Mapping[str, Any]

    def _full(self) -> dict[str, Any]:
        return {**Program(self.program).arguments(self.arguments), **self.arguments}

    def check(self) -> None:
        """Raises NotApplicable where a prior is improper, or no site is data."""
        full = self._full()
        laws = {name: node["fn"] for name, node in _sites(self.program, **full).items()}
        _refuse([name for name, law in laws.items() if _improper(law)])
        left_out = [name for name, value in full.items() if value is None]
        if not set(left_out) & set(laws):
            raise NotApplicable(
                "an argument left out that names the site of the data",
                f"{', '.join(left_out) or 'none'} left out, sites {', '.join(laws)}",
                "write pyro.sample('y', ..., obs=y), and pass the other arguments as sbc(program, how, arguments=dict(x=x))",
            )

    def drawn(self) -> Drawn:
        """Sites and data, the program, and its arguments with those data."""
        full = self._full()
        values = {name: node["value"] for name, node in _sites(self.program, **full).items()}
        data = {
            name: values[name] for name, value in full.items() if value is None and name in values
        }
        return values, self.program, {**full, **data}


def _sites(program: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, dict[str, Any]]:
    trace = pyro.poutine.trace(program).get_trace(*arguments, **named)  # type: ignore[attr-defined]
    nodes: dict[str, dict[str, Any]] = dict(trace.nodes)  # type: ignore[arg-type]
    return {name: node for name, node in nodes.items() if node["type"] == "sample"}


def _improper(law: Any) -> bool:
    while hasattr(law, "base_dist"):
        law = law.base_dist
    return bool(getattr(law, "improper", False))


def _refuse(flat: list[str]) -> None:
    if flat:
        raise NotApplicable(
            "priors that can be drawn from", f"Flat for {', '.join(flat)}", "use proper priors"
        )
