"""Draw parameters and data from the prior of a model, or of a user's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyro
from torch import Tensor

from ..data.dataset import Dataset
from ..data.roles import ROLES, columns_given
from ..errors import DataError, NotApplicable
from ..models import Model, Program
from ..priors import Flat, bare

TRIES = 100  # simulated data sets in a row that a model may refuse

Drawn = tuple[dict[str, Tensor], Any, Any]
"""The values of all sites, what to fit, and the data to fit it to."""


@dataclass(frozen=True)
class OfModel:
    """A model of ``ppgp.models`` at inputs X, or at the rows of a table.

    Attributes:
        model: The model; with a table, prepared for it.
        X: Inputs [n, d].
        table: Rows with an offset, trials, groups or known noise; None: X alone.
    """

    model: Model
    X: Tensor
    table: Dataset | None = None

    def check(self) -> None:
        """Check that all priors can be drawn from.

        Raises:
            NotApplicable: If a prior is Flat, or rows have weights or censored targets.
        """
        if self.table is not None:
            for role in columns_given(self.table):
                if ROLES[role].of_target:
                    got, do = f"{role} in the table", "leave it out"
                    raise NotApplicable("rows whose targets can be drawn", got, do)
        sites = self.model.sites(self.X.shape[1])
        priors = {name: bare(getattr(site, "prior", None)) for name, site in sites.items()}
        _refuse([name for name, prior in priors.items() if isinstance(prior, Flat)])

    def drawn(self) -> Drawn:
        """Return the values of sites and y, the model prepared for them, and its Dataset.

        Data that the model refuses (labels of one class) are drawn again: a condition on y alone
        does not change p(theta given y).
        """
        model: Any = self.model
        if getattr(model, "mean", 0.0) is None:  # y is drawn about 0, so that the fit may use it
            model = replace(model, mean=0.0)
        refused: DataError | None = None
        columns = {} if self.table is None else self.table.for_prediction
        for _ in range(TRIES):
            nodes = _sites(model.model, self.X, **columns)
            values = {name: node["value"] for name, node in nodes.items()}
            try:
                data = Dataset(self.X, values["y"])
                if self.table is not None:
                    data = replace(self.table, y=values["y"])
                return values, model.prepare(data), data
            except DataError as error:
                refused = error
        assert refused is not None
        raise refused


@dataclass(frozen=True)
class OfProgram:
    """A user's program; its data are the sites named like the arguments that are left out."""

    program: Callable[..., Any]
    arguments: Mapping[str, Any]

    def _all_arguments(self) -> dict[str, Any]:
        """Return every argument of the program, None for those that are left out."""
        return {**Program(self.program).arguments(self.arguments), **self.arguments}

    def check(self) -> None:
        """Check that all priors can be drawn from, and that some site is data.

        Raises:
            NotApplicable: If a prior is improper, or no site is data.
        """
        arguments = self._all_arguments()
        sites = _sites(self.program, **arguments)
        _refuse([name for name, node in sites.items() if _improper(node["fn"])])
        left_out = [name for name, value in arguments.items() if value is None]
        if not set(left_out) & set(sites):
            raise NotApplicable(
                "an argument left out that names the site of the data",
                f"{', '.join(left_out) or 'none'} left out, sites {', '.join(sites)}",
                "write pyro.sample('y', ..., obs=y), and pass the other arguments as "
                "sbc(program, how, arguments=dict(x=x))",
            )

    def drawn(self) -> Drawn:
        """Return the values of all sites, the program, and its arguments with the data drawn."""
        arguments = self._all_arguments()
        values = {name: node["value"] for name, node in _sites(self.program, **arguments).items()}
        left_out = [name for name, value in arguments.items() if value is None and name in values]
        data = {name: values[name] for name in left_out}
        return values, self.program, {**arguments, **data}


def _sites(program: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, dict[str, Any]]:
    """Return the sample sites of one run of a program."""
    traced: Any = pyro.poutine.trace(program)
    nodes: dict[str, dict[str, Any]] = dict(traced.get_trace(*arguments, **named).nodes)
    return {name: node for name, node in nodes.items() if node["type"] == "sample"}


def _improper(distribution: Any) -> bool:
    """Return whether a distribution, or the one it wraps, is improper."""
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return bool(getattr(distribution, "improper", False))


def _refuse(flat: list[str]) -> None:
    """Raise NotApplicable if any site has a Flat prior."""
    if flat:
        raise NotApplicable(
            "priors that can be drawn from", f"Flat for {', '.join(flat)}", "use proper priors"
        )
