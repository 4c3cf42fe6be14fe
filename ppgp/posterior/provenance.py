"""Where a prediction comes from: its rows, and those of the fit behind it, to be compared once y is known."""

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
    """The rows of a prediction and those of the fit. x alone is no evidence that a row was seen: a pair (x, y) is.

    Args:
        trained: () -> the fit's inputs [n, k] and targets [n], in the units of the data.
        rows: () -> the inputs [m, k] of the prediction.
        index: which of these rows; None: all.
        others: the same rows, and those of other tables that the fit owes something to.
    """

    trained: Callable[[], tuple[Table, Table]]
    rows: Callable[[], Table]
    index: Tensor | None = None
    others: tuple[Provenance, ...] = ()
    _last: dict[bytes, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, index: Tensor) -> Provenance:
        others = tuple(other[index] for other in self.others)
        return replace(
            self, index=index if self.index is None else self.index[index], others=others
        )

    def in_training_with(self, y: Tensor) -> Tensor:
        """[m] bool: rows that the fit has seen with this y [m], up to rounding, where chance does not explain as many."""
        target = numbers(y)
        key = target.tobytes()
        if key not in self._last:  # several scores are calibrated on the same rows
            X, known = self.trained()
            rows = self.rows() if self.index is None else self.rows()[self.index.cpu().numpy()]
            found = torch.from_numpy(
                same_rows(np.column_stack([X, known]), np.column_stack([rows, target]))
            )
            for other in self.others:
                found = found | other.in_training_with(y)
            self._last.clear()
            self._last[key] = found
        return self._last[key]


def of_table(
    X: Tensor, train: Dataset, scaler: Scaler | None, others: Sequence[Any] = ()
) -> Provenance:
    """Of rows X [m, d] on the scale of the training table; ``others``: tables in the units of the data."""

    def inputs(rows: Tensor) -> Table:
        return numbers(rows if scaler is None else rows * scaler.x_sd + scaler.x_mean)

    def trained() -> tuple[Table, Table]:
        y = train.y if scaler is None else train.y * scaler.y_sd + scaler.y_mean
        return inputs(train.X), numbers(y)

    def rows() -> Table:
        return inputs(X)

    def beside(other: Dataset) -> Provenance:
        there, here = common_columns(other, train)
        return Provenance(
            lambda: (numbers(other.X)[:, there], numbers(other.y)), lambda: rows()[:, here]
        )

    return Provenance(
        trained, rows, others=tuple(beside(other) for other in others if isinstance(other, Dataset))
    )


def common_columns(one: Dataset, other: Dataset) -> tuple[list[int], list[int]]:
    """The columns that two tables share, as places in either: by their names, or all where neither has names and
    their number is the same. None where nothing says which is which: then y alone tells rows apart."""
    if one.feature_names and other.feature_names:
        both = [name for name in one.feature_names if name in other.feature_names]
        return [one.feature_names.index(name) for name in both], [
            other.feature_names.index(name) for name in both
        ]
    every = list(range(one.d)) if one.d == other.d else []
    return every, every


class ProgramRows:
    """The rows of a program: its observed sites have the y, and the arguments with one entry per row are the inputs.

    Args:
        function: the program.
        theta: every site and param of one draw.
        data: the arguments of the fit.
        given: the arguments of the prediction.
        others: the arguments of other fits that this one owes something to.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        theta: Mapping[str, Tensor],
        data: Mapping[str, Any],
        given: Mapping[str, Any],
        others: Sequence[Any] = (),
    ) -> None:
        programs = [
            other for other in others if isinstance(other, Mapping) and other.keys() == data.keys()
        ]
        self.others = [ProgramRows(function, theta, other, given) for other in programs]
        self.function, self.theta, self.data, self.given = function, theta, data, given
        self._observed: dict[str, Table] | None = None

    def at(self, site: str, rows: int) -> Provenance:
        """Of the law of a site at so many rows."""

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
        """The y [n] that the fit saw at a site; empty where it saw none, or has no rows there."""
        with quietly(), seeded(0), torch.no_grad(), Run(dict(self.theta)) as run:
            self.function(**self.data)
        observed = run.observed()
        known = observed[site]["value"] if site in observed else torch.empty(0)
        return numbers(known if known.ndim == 1 else torch.empty(0))


def numbers(values: Tensor) -> Table:
    return values.detach().cpu().double().numpy()


def columns(value: Any, n: int) -> Table | None:
    """An argument with one entry per row as columns [n, k]; None where it has none."""
    try:
        table = numbers(value) if isinstance(value, Tensor) else np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return None
    if table.ndim and len(table) == n:
        return table.reshape(n, -1)
    return table.T if table.ndim == 2 and table.shape[1] == n else None
