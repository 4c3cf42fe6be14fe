"""Draw parameters and data from the prior of a model, or of a user's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pyro
import torch
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from ..data.dataset import Dataset
from ..data.roles import ROLES, columns_given
from ..density.handlers import Redraw, is_data
from ..density.plates import plates_taking
from ..errors import DataError, NotApplicable
from ..models import Model, Program
from ..priors import Flat, bare
from ..runtime.seeding import seeded

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
    """A user's program, and its arguments.

    Its data are the sites named like the arguments that are left out, and those that observe an
    argument or a part of one: of such an argument the shape is used and the values are not.
    """

    program: Callable[..., Any]
    arguments: Mapping[str, Any]

    def _all_arguments(self) -> dict[str, Any]:
        """Return every argument of the program, None for those that are left out.

        Each tensor has memory of its own, which shows what observed values are a part of.
        """
        own = {
            name: value.clone(memory_format=torch.contiguous_format)
            if isinstance(value, Tensor)
            else value
            for name, value in self.arguments.items()
        }
        return {**Program(self.program).arguments(own), **own}

    def check(self) -> None:
        """Check that all priors can be drawn from, and that some site is data.

        Raises:
            NotApplicable: If a prior is improper, no site is data, an observed value is neither an
                argument nor a part of one, or the program reads its data other than by ``obs=``.
        """
        arguments = self._all_arguments()
        sites = _sites(self.program, **arguments)
        _refuse([name for name, node in sites.items() if _improper(node["fn"])])
        left_out = [name for name, value in arguments.items() if value is None]
        given = [name for name, node in sites.items() if is_data(node)]
        if not given and not set(left_out) & set(sites):
            raise NotApplicable(
                "an argument left out that names the site of the data",
                f"{', '.join(left_out) or 'none'} left out, sites {', '.join(sites)}",
                "write pyro.sample('y', ..., obs=y), and pass the other arguments as "
                "sbc(program, how, arguments=dict(x=x))",
            )
        if given:
            self._check_reads_no_data(arguments, given)

    def _check_reads_no_data(self, arguments: dict[str, Any], given: list[str]) -> None:
        """Check that what the program draws does not depend on the data that it is given.

        Raises:
            NotApplicable: If it does: drawn data would not have the density of the fit.
        """
        runs = []
        for values in (arguments, self._with_data(arguments, seed=1)):
            with seeded(0):
                runs.append(_drawn_again(self.program, values))
        for name in given:
            first, second = (run.get(name) for run in runs)
            if first is None or second is None or not torch.equal(first, second):
                raise NotApplicable(
                    "a program that reads its data by obs= alone",
                    f"one whose {name!r} depends on the values of the data",
                    "write the next value in terms of what pyro.sample returned for the one "
                    "before, or leave the data out and draw it where it is None",
                )

    def _with_data(self, arguments: dict[str, Any], seed: int) -> dict[str, Any]:
        with seeded(seed):
            return self._placed(arguments, _drawn_again(self.program, arguments))

    def _placed(self, arguments: dict[str, Any], values: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the arguments with the drawn values where the observed ones were."""
        tensors = {name: v for name, v in arguments.items() if isinstance(v, Tensor)}
        placed = {name: value.clone() for name, value in tensors.items()}
        filled = set()
        for site, node in _sites(self.program, **arguments).items():
            if not is_data(node):
                continue
            old, new = node["value"], values[site]
            name = next((n for n, v in tensors.items() if _is_part(old, v)), None)
            if name is None or old.shape != new.shape:
                raise NotApplicable(
                    "observed values that are an argument of the program, or a part of one",
                    f"others at {site!r}",
                    "pass the tensor that the site observes, of the shape of its distribution",
                )
            here = torch.as_strided(placed[name], old.shape, old.stride(), old.storage_offset())
            here.copy_(new)
            filled.add(name)
        return arguments | {name: placed[name] for name in filled}

    def drawn(self) -> Drawn:
        """Return the values of all sites, the program, and its arguments with the data drawn."""
        arguments = self._all_arguments()
        values = _drawn_again(self.program, arguments)
        left_out = [name for name, value in arguments.items() if value is None and name in values]
        data = {name: values[name] for name in left_out}
        return values, self.program, {**self._placed(arguments, values), **data}


def _is_part(part: Any, whole: Tensor) -> bool:
    """Return whether a tensor is another one, or a view of it."""
    if not isinstance(part, Tensor) or part.dtype != whole.dtype:
        return False
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def _drawn_again(program: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the value of every site of a run in which the data are drawn."""
    again: Any = Redraw()(program)
    return {name: node["value"] for name, node in _sites(again, **arguments).items()}


def _sites(program: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, dict[str, Any]]:
    """Return the sample sites of one run of a program."""
    traced: Any = pyro.poutine.trace(program)
    with plates_taking():
        nodes: dict[str, dict[str, Any]] = dict(traced.get_trace(*arguments, **named).nodes)
    samples = {name: node for name, node in nodes.items() if node["type"] == "sample"}
    return {name: node for name, node in samples.items() if not site_is_subsample(cast(Any, node))}


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
