"""The rows of a program: its observed y, with the arguments that have one entry per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from ..density.handlers import Run, quietly
from ..provenance.provenance import Provenance, Table, numbers
from ..runtime.seeding import seeded

MOST_BATCHES = 1000  # runs of a program that takes its rows at random, to see all of them


class _Batch(Messenger):
    """Let the plate that takes rows at random take the rows from ``start`` on.

    Attributes:
        sizes: {plate: (how many rows it takes, how many there are)}.
        index: The numbers of the rows that it took.
    """

    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start
        self.sizes: dict[str, tuple[int, int]] = {}
        self.index = torch.empty(0, dtype=torch.long)

    def _pyro_sample(self, msg: Any) -> None:
        if not site_is_subsample(msg) or msg["value"] is not None:
            return
        taken, size = msg["fn"].subsample_size, msg["fn"].size
        if taken is None or taken >= size:
            return
        first = min(self.start, size - taken)
        self.sizes[msg["name"]] = (taken, size)
        self.index = torch.arange(first, first + taken, device=msg["fn"].device)
        msg["value"] = self.index


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

    def at(self, site: str, rows: int) -> Provenance:
        """Return the provenance of the prediction of a site at this number of rows."""
        found: list[tuple[Table, Table, Table]] = []

        def pairs() -> tuple[Table, Table, Table]:
            if found:
                return found[0]
            y = self._targets(site)
            old, new = [np.empty((len(y), 0))], [np.empty((rows, 0))]
            for name, value in self.given.items():
                a, b = columns(self.data.get(name), len(y)), columns(value, rows)
                if a is not None and b is not None and a.shape[1] == b.shape[1]:
                    old.append(a)
                    new.append(b)
            found.append((np.concatenate(old, 1), y, np.concatenate(new, 1)))
            return found[0]

        others = tuple(other.at(site, rows) for other in self.others)
        return Provenance(lambda: pairs()[:2], lambda: pairs()[2], others=others)

    def unknown(self, site: str) -> str:
        """Return why the training rows of a site cannot be recognised; "" where they can."""
        for rows in (self, *self.others):
            if rows._site(site) is None:
                return f"the program observes no {site!r} in the fit"
            if rows._observed is None:
                return "the program takes too few rows at a time to see all of them"
        return ""

    def _site(self, site: str) -> str | None:
        """Return the observed site that belongs to a predicted one."""
        observed = self._observed
        if observed is None or site in observed:
            return site
        return next(iter(observed)) if len(observed) == 1 else None

    def _targets(self, site: str) -> Table:
        """Return the training y [n] of a site; empty if it is not known."""
        name = self._site(site)
        if name is None or self._observed is None:
            return np.empty(0)
        return self._observed[name]

    @cached_property
    def _observed(self) -> dict[str, Table] | None:
        """All rows of each observed site, laid out as in predictions; None if not known."""
        batch, sites = self._run(0)
        if not batch.sizes:
            return {name: numbers(_of_rows(s).reshape(-1)) for name, s in sites.items()}
        taken, size = next(iter(batch.sizes.values()))
        if len(batch.sizes) > 1 or size > MOST_BATCHES * taken:
            return None
        plate = next(iter(batch.sizes))
        whole: dict[str, Tensor] = {}
        for start in range(0, size, taken):
            batch, sites = self._run(start)
            for name, s in sites.items():
                value, axis = _of_rows(s), _axis(s, plate)
                if axis is None:
                    whole[name] = value
                    continue
                if name not in whole:
                    shape = [*value.shape]
                    shape[axis] = size
                    whole[name] = value.new_zeros(shape)
                whole[name].index_copy_(axis, batch.index.to(value.device), value)
        return {name: numbers(value.reshape(-1)) for name, value in whole.items()}

    def _run(self, start: int) -> tuple[_Batch, dict[str, dict[str, Any]]]:
        """Run the program on the data of the fit, and return its observed sites."""
        batch = _Batch(start)
        with quietly(), seeded(0), torch.no_grad(), batch, Run(dict(self.theta)) as run:
            self.function(**self.data)
        return batch, run.observed()


def _of_rows(site: Mapping[str, Any]) -> Tensor:
    """Return the value of an observed site, [*batch, *event]."""
    value, law = site["value"], site["fn"]
    shape = law.batch_shape + law.event_shape
    return value.expand(torch.broadcast_shapes(value.shape, shape))


def _axis(site: Mapping[str, Any], plate: str) -> int | None:
    """Return the axis of a plate in the value of a site, counted from its end."""
    for frame in site["cond_indep_stack"]:
        if frame.name == plate and frame.vectorized:
            return frame.dim - len(site["fn"].event_shape)
    return None


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
