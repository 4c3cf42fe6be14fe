"""Which rows of a prediction are training rows, to be decided once their y are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Dataset, Scaler
from ..numerics.same_rows import Table, same_rows
from ..numerics.seeding import seeded
from ..target.handlers import Run, quietly


@dataclass(frozen=True, eq=False)
class Provenance:
    """The rows of a prediction and the training rows.

    The same x alone does not make a row a training row: the same pair (x, y) does.

    Attributes:
        trained: () -> the training inputs [n, k] and targets [n], in the units of the data.
        rows: () -> the inputs [m, k] of the prediction.
        index: Which of these rows; None for all.
        others: The same rows compared with other tables that influenced the fit.
    """

    trained: Callable[[], tuple[Table, Table]]
    rows: Callable[[], Table]
    index: Tensor | None = None
    others: tuple[Provenance, ...] = ()
    _last: dict[bytes, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, index: Tensor) -> Provenance:
        others = tuple(other[index] for other in self.others)
        if self.index is not None:
            index = self.index[index]
        return replace(self, index=index, others=others)

    def in_training_with(self, y: Tensor) -> Tensor:
        """Return which rows are training rows with this y [m], as [m] bool.

        Pairs (x, y) are compared up to rounding; matches that chance explains do not count.
        """
        target = numbers(y)
        key = target.tobytes()
        if key not in self._last:  # several scores are calibrated on the same rows
            X, known = self.trained()
            rows = self.rows()
            if self.index is not None:
                rows = rows[self.index.cpu().numpy()]
            before, now = np.column_stack([X, known]), np.column_stack([rows, target])
            repeated = torch.from_numpy(same_rows(before, now))
            for other in self.others:
                repeated = repeated | other.in_training_with(y)
            self._last.clear()
            self._last[key] = repeated
        return self._last[key]


def of_table(X: Tensor, train: Dataset, scaler: Scaler, others: Sequence[Any] = ()) -> Provenance:
    """Return the provenance of rows of a table.

    Args:
        X: the rows [m, d], on the scale of the training table.
        train: the training table.
        scaler: the standardisation of the training table.
        others: other tables that influenced the fit, in the units of the data.
    """

    def inputs(rows: Tensor) -> Table:
        return numbers(scaler.inputs_back(rows))

    def trained() -> tuple[Table, Table]:
        return inputs(train.X), numbers(scaler.targets_back(train.y))

    def rows() -> Table:
        return inputs(X)

    def compared_with(other: Dataset) -> Provenance:
        there, here = common_columns(other, train)

        def trained_there() -> tuple[Table, Table]:
            return numbers(other.X)[:, there], numbers(other.y)

        return Provenance(trained_there, lambda: rows()[:, here])

    tables = tuple(compared_with(other) for other in others if other.is_table)
    return Provenance(trained, rows, others=tables)


def common_columns(one: Dataset, other: Dataset) -> tuple[list[int], list[int]]:
    """Return the positions of the columns that two tables share, in the one and in the other.

    Columns are matched by name if both tables have names. Otherwise all columns match if the
    tables have as many, and none if not; rows are then compared by y alone.
    """
    if one.feature_names and other.feature_names:
        both = [name for name in one.feature_names if name in other.feature_names]
        first = [one.feature_names.index(name) for name in both]
        return first, [other.feature_names.index(name) for name in both]
    if one.d != other.d:
        return [], []
    return list(range(one.d)), list(range(one.d))


class ProgramRows:
    """The rows of a program: y are its observed sites, inputs the arguments with one entry per row.

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

        @cache
        def pairs() -> tuple[Table, Table, Table]:
            y = self._targets(site)
            old, new = [np.empty((len(y), 0))], [np.empty((rows, 0))]
            for name, value in self.given.items():
                a, b = columns(self.data.get(name), len(y)), columns(value, rows)
                if a is not None and b is not None and a.shape[1] == b.shape[1]:
                    old.append(a)
                    new.append(b)
            return np.concatenate(old, 1), y, np.concatenate(new, 1)

        others = tuple(other.at(site, rows) for other in self.others)
        return Provenance(lambda: pairs()[:2], lambda: pairs()[2], others=others)

    def _targets(self, site: str) -> Table:
        """Return the training y [n] of a site; empty if it is not observed, or has no rows."""
        with quietly(), seeded(0), torch.no_grad(), Run(dict(self.theta)) as run:
            self.function(**self.data)
        observed = run.observed()
        if site in observed and observed[site]["value"].ndim == 1:
            return numbers(observed[site]["value"])
        return numbers(torch.empty(0))


def numbers(values: Tensor) -> Table:
    """Return a tensor as a NumPy array in float64."""
    return values.detach().cpu().double().numpy()


def columns(value: Any, n: int) -> Table | None:
    """Return an argument with one entry per row as columns [n, k]; None for other arguments."""
    try:
        table = numbers(value) if isinstance(value, Tensor) else np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return None
    if table.ndim and len(table) == n:
        return table.reshape(n, -1)
    if table.ndim == 2 and table.shape[1] == n:
        return table.T
    return None
