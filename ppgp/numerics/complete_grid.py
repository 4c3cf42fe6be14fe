"""The complete grid that the rows of a table form, in whatever order they come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError

SAME = 64  # machine epsilons of the largest number of a column, by which one level may vary


class Grid(NamedTuple):
    """A complete grid.

    Attributes:
        levels: The different values of each group of columns, [n_i, d_i] each.
        cell: The number of the cell of each row [n], in the order of a flat grid.
    """

    levels: list[Tensor]
    cell: Tensor

    @property
    def shape(self) -> list[int]:
        """The number of levels along each axis."""
        return [len(level) for level in self.levels]

    def on_axes(self, values: Tensor) -> Tensor:
        """Return numbers of rows [n] as a tensor of cells [n_1, ..., n_p]."""
        return torch.empty_like(values).index_copy_(0, self.cell, values).reshape(self.shape)


def levels_of(X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the different rows of X [n, d], up to rounding, and which of them each row is.

    Returns:
        The levels [k, d] in lexicographic order, and the number of the level of each row [n].
    """
    table = X.detach().cpu().numpy()
    codes = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        values, code = np.unique(column, return_inverse=True)
        size = np.abs(values).max(initial=0.0)
        gaps = np.diff(values) > SAME * np.finfo(values.dtype).eps * size
        merged = np.concatenate([[0], np.cumsum(gaps)])[code]
        # numbered again, so that the codes of many columns stay small
        _, codes = np.unique(codes * (merged.max(initial=0) + 1) + merged, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    return X[torch.from_numpy(first).to(X.device)], torch.from_numpy(codes).to(X.device)


def complete_grid(X: Tensor, groups: Sequence[Sequence[int]], instead: str) -> Grid:
    """Return the complete grid that the rows of X form.

    Args:
        X: Rows [n, d].
        groups: The columns along each axis of the grid.
        instead: What to do with rows that form none, for the messages.

    Raises:
        DataError: If a combination of levels is missing, or occurs twice.
    """
    levels, cell = [], torch.zeros(len(X), dtype=torch.long, device=X.device)
    for columns in groups:
        own, code = levels_of(X[:, list(columns)])
        levels.append(own)
        cell = cell * len(own) + code
    cells = math.prod(len(own) for own in levels)
    filled = len(torch.unique(cell))
    if filled == cells == len(X):
        return Grid(levels, cell)
    shape = " x ".join(str(len(own)) for own in levels)
    expected = f"rows that form a complete grid, each of its {shape} cells once"
    if filled == cells:
        raise DataError(
            expected,
            f"{len(X):,} rows, more than one in some cells",
            f"average the rows of a cell, or {instead}",
        )
    raise DataError(
        expected,
        f"{len(X):,} rows that leave {cells - filled:,} cells empty",
        "give columns that vary together one kernel: Subspace(kernel, columns); or leave out the "
        f"levels with empty cells, or {instead}",
    )
