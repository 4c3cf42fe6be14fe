"""Where a prediction comes from: its rows, and those of the fit behind it, to be compared once y is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """

    trained: Callable[[], tuple[Table, Table]]
    rows: Callable[[], Table]
    index: Tensor | None = None
    _last: dict[bytes, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, index: Tensor) -> Provenance:
        return replace(self, index=index if self.index is None else self.index[index])

    def seen_with(self, y: Tensor) -> Tensor:
        """[m] bool: rows that the fit has seen with this y [m], up to rounding, where chance does not explain as many."""
        target = numbers(y)
        key = target.tobytes()
        if key not in self._last:  # several scores are calibrated on the same rows
            X, known = self.trained()
            rows = self.rows() if self.index is None else self.rows()[self.index.cpu().numpy()]
            found = same_rows(np.column_stack([X, known]), np.column_stack([rows, target]))
            self._last.clear()
            self._last[key] = torch.from_numpy(found)
        return self._last[key]


def of_table(X: Tensor, train: Dataset, scaler: Scaler | None) -> Provenance:
    """Of rows X [m, d] on the scale of the training table."""

    def inputs(rows: Tensor) -> Table:
        return numbers(rows if scaler is None else rows * scaler.x_sd + scaler.x_mean)

    def trained() -> tuple[Table, Table]:
        y = train.y if scaler is None else train.y * scaler.y_sd + scaler.y_mean
        return inputs(train.X), numbers(y)

    return Provenance(trained, lambda: inputs(X))


class ProgramRows:
    """The rows of a program: its observed sites have the y, and the arguments with one entry per row are the inputs.

    Args:
        function: the program.
        theta: every site and param of one draw.
        data: the arguments of the fit.
        given: the arguments of the prediction.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        theta: Mapping[str, Tensor],
        data: Mapping[str, Any],
        given: Mapping[str, Any],
    ) -> None:
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

        return Provenance(lambda: pairs()[:2], lambda: pairs()[2])

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
