"""The rows of a program: its observed y, with the arguments that have one entry per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.argument_mistakes import not_finite
from ..density.handlers import Run, quietly
from ..density.plates import plates_taking
from ..distributions.univariate import parameters
from ..errors import DataError
from ..numerics.shapes import broadcast_shapes
from ..provenance.provenance import Provenance, Table, numbers
from ..runtime.seeding import seeded
from .axes import steps_of_loops


class ProgramRows:
    """The rows of a program and of a prediction.

    Args:
        function: The program.
        theta: Every site and param of one draw.
        data: The arguments of the fit.
        given: The arguments of the prediction.
        others: The arguments of other fits that influenced this one.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        theta: Mapping[str, Tensor],
        data: Mapping[str, Any],
        given: Mapping[str, Any],
        others: Sequence[Any] = (),
    ) -> None:
        self.function = function
        self.theta = theta
        self.data = data
        self.given = given
        self.others: list[ProgramRows] = []
        for other in others:
            if isinstance(other, Mapping) and other.keys() == data.keys():
                self.others.append(ProgramRows(function, theta, other, given))

    def at(self, site: str, rows: int, part: slice = slice(None)) -> Provenance:
        """Return the provenance of the prediction of a site at this number of rows.

        Args:
            site: The site, or the name of a loop of sites.
            rows: The number of rows.
            part: Which numbers of the site they are, where each row has several.
        """
        found: list[tuple[Table, Table, Table]] = []

        def pairs() -> tuple[Table, Table, Table]:
            if found:
                return found[0]
            y = self._targets(site)[part]
            old, new = [np.empty((len(y), 0))], [np.empty((rows, 0))]
            for name, value in self.given.items():
                a, b = columns(self.data.get(name), len(y)), columns(value, rows)
                if a is not None and b is not None and a.shape[1] == b.shape[1]:
                    old.append(a)
                    new.append(b)
            found.append((np.concatenate(old, 1), y, np.concatenate(new, 1)))
            return found[0]

        others = tuple(other.at(site, rows, part) for other in self.others)
        return Provenance(lambda: pairs()[:2], lambda: pairs()[2], others=others)

    def unknown(self, site: str) -> str:
        """Return why the training rows of a site cannot be recognised; "" where they can."""
        for rows in (self, *self.others):
            if rows._site(site) is None:
                return f"the program observes no {site!r} in the fit"
        return ""

    def _site(self, site: str) -> str | None:
        """Return the observed site that belongs to a predicted one."""
        observed = self._observed
        if site in observed or site in self._loops:
            return site
        return next(iter(observed)) if len(observed) == 1 else None

    def _targets(self, site: str) -> Table:
        """Return the training y [n] of a site; empty if it is not known."""
        name = self._site(site)
        if name in self._loops:
            return np.concatenate([self._observed[step] for step in self._loops[name]])
        return np.empty(0) if name is None else self._observed[name]

    @cached_property
    def _loops(self) -> dict[str, list[str]]:
        """The names of loops of observed sites, with their steps."""
        return steps_of_loops(self._observed)

    @cached_property
    def _observed(self) -> dict[str, Table]:
        """All rows of each observed site, laid out as in predictions."""
        with quietly(), seeded(0), torch.no_grad(), plates_taking(), Run(dict(self.theta)) as run:
            self.function(**self.data)
        return {name: numbers(_of_rows(s).reshape(-1)) for name, s in run.observed().items()}


def _of_rows(site: Mapping[str, Any]) -> Tensor:
    """Return the value of an observed site, [*batch, *event]."""
    value, law = site["value"], site["fn"]
    shape = law.batch_shape + law.event_shape
    return value.expand(broadcast_shapes(value.shape, shape))


def columns(value: Any, n: int) -> Table | None:
    """Return an argument with one entry per row as columns [n, k]; None for other arguments.

    Its first axes may be the plates whose elements are the rows.
    """
    try:
        table = numbers(value) if isinstance(value, Tensor) else np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return None
    if n in accumulate(table.shape, mul):
        return table.reshape(n, -1)
    if table.ndim == 2 and table.shape[1] == n:
        return table.T
    return None


def check_numbers(site: str, distribution: Any, arguments: Mapping[str, Any]) -> None:
    """Raise DataError if NaN or infinity among the arguments leaves a site without a prediction.

    Args:
        site: The site.
        distribution: Its distribution, or ``Vectors``.
        arguments: The arguments of the prediction.
    """
    if not isinstance(distribution, Distribution):
        distribution = distribution.law
    if distribution is None:
        return
    lost = any(bool(torch.isnan(v).any()) for v in parameters(distribution).values())
    holes = not_finite(arguments) if lost else ""
    if holes:
        wanted = f"numbers in the arguments of the program, for predictions of {site!r}"
        raise DataError(wanted, holes, "drop those rows, or fill them")
