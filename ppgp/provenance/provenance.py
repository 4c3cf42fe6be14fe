"""Which rows of a prediction are training rows, to be decided once their y are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Dataset, Scaler
from .same_rows import Table, compared


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
    _last: dict[bytes, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, index: Tensor) -> Provenance:
        others = tuple(other[index] for other in self.others)
        if self.index is not None:
            index = self.index[index]
        return replace(self, index=index, others=others)

    def in_training_with(self, y: Tensor) -> Tensor:
        """Return which rows are training rows with this y [m], as [m] bool.

        Pairs (x, y) are compared up to rounding; matches that chance explains do not count.
        """
        return self._compared(y)[0]

    def alike_with(self, y: Tensor) -> Tensor:
        """Return which rows equal a training row with this y [m], by chance or not, as [m] bool."""
        return self._compared(y)[1]

    def _compared(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the results of ``in_training_with`` and of ``alike_with``."""
        target = numbers(y)
        key = target.tobytes()
        if key not in self._last:  # several scores are calibrated on the same rows
            X, known = self.trained()
            rows = self.rows()
            if self.index is not None:
                rows = rows[self.index.cpu().numpy()]
            before, now = np.column_stack([X, known]), np.column_stack([rows, target])
            repeated, alike = map(torch.from_numpy, compared(before, now))
            for other in self.others:
                repeated = repeated | other.in_training_with(y)
                alike = alike | other.alike_with(y)
            self._last.clear()
            self._last[key] = repeated, alike
        return self._last[key]


def of_table(X: Tensor, train: Dataset, scaler: Scaler, others: Sequence[Any] = ()) -> Provenance:
    """Return the provenance of rows of a table.

    Args:
        X: The rows [m, d], on the scale of the training table.
        train: The training table.
        scaler: The standardisation of the training table.
        others: Other tables that influenced the fit, in the units of the data.
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


def numbers(values: Tensor) -> Table:
    """Return a tensor as a NumPy array in float64."""
    return values.detach().cpu().double().numpy()
