"""Columns of categories as codes 0, 1, 2, ..., which trees split into sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError, listed
from ..tables.entries import is_missing

LARGEST = 65_535  # a split stores one bit for every code up to the largest
Levels = Mapping[str, tuple[str, ...]]


def coded(inputs: Any) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Return a DataFrame with codes in place of text and categories, and their levels.

    The code of a level is its position: among the categories of a categorical column, and in
    alphabetical order otherwise. A missing category becomes NaN.

    Args:
        inputs: The DataFrame.
    """
    import pandas as pd

    columns, levels = {}, {}
    for label in inputs.columns:
        column = inputs[label]
        columns[label] = column
        if column.dtype.kind in "fiubmMc":
            continue
        present = [str(entry) for entry in column if not is_missing(entry)]
        own = sorted(set(present))
        if isinstance(column.dtype, pd.CategoricalDtype):
            own = [str(entry) for entry in column.cat.categories]
        levels[str(label)] = tuple(own)
        columns[label] = codes_of(column.to_numpy(dtype=object), tuple(own)).numpy()
    return pd.DataFrame(columns, index=inputs.index), levels


def codes_of(entries: np.ndarray, levels: Sequence[str]) -> Tensor:
    """Return the codes of entries: NaN for a missing one, and the number of levels for a new one.

    Args:
        entries: [n], text or categories.
        levels: The levels; that at position c has the code c.
    """
    known = {level: float(code) for code, level in enumerate(levels)}
    codes = [
        np.nan if is_missing(entry) else known.get(str(entry), float(len(levels)))
        for entry in entries
    ]
    return torch.tensor(codes, dtype=torch.float64)


def recoded(X: Tensor, columns: Mapping[int, tuple[Sequence[str], Sequence[str]]]) -> Tensor:
    """Return X with the codes of other levels.

    Args:
        X: [n, d].
        columns: ``{column: (its levels, the levels that its codes shall have)}``.
    """
    X = X.clone()
    for column, (own, wanted) in columns.items():
        place = {level: float(code) for code, level in enumerate(wanted)}
        table = torch.tensor([*(place.get(one, float(len(wanted))) for one in own), len(wanted)])
        codes = X[:, column]
        known = ~codes.isnan()
        at = codes[known].long().clamp_max(len(own))
        X[known, column] = table.to(X)[at]
    return X


def check_codes(
    X: Tensor,
    columns: Sequence[int],
    names: Sequence[str] | None = None,
    levels: Sequence[Sequence[str]] | None = None,
) -> None:
    """Check that columns hold codes; NaN is a missing category.

    Args:
        X: [n, d].
        columns: The numbers of the columns.
        names: The names of all columns.
        levels: The levels of each of these columns. The number of levels is the code of a category
            that is none of them.

    Raises:
        DataError: If an entry is negative, not whole, or too large.
    """
    for place, column in enumerate(columns):
        codes, most = X[:, column], LARGEST
        if levels is not None:
            most = min(most, len(levels[place]))
        wrong = (codes < 0) | (codes > most) | (codes != codes.floor())
        rows = torch.nonzero(wrong & ~codes.isnan()).flatten().tolist()
        if rows:
            name = names[column] if names else column
            raise DataError(
                f"codes 0, 1, 2, ... up to {most:,} in column {name}, which is categorical",
                f"other numbers in {listed(rows, 'row')}",
                "number the categories from 0, and give the levels of all of them or none",
            )


def check_levels(
    levels: Sequence[Sequence[Any]], categorical: Sequence[Any] | None
) -> tuple[tuple[str, ...], ...]:
    """Return the levels of the categorical columns as text.

    Raises:
        SettingError: If there are not as many as columns.
    """
    if len(levels) != len(categorical or ()):
        raise SettingError(
            "the levels of every categorical column",
            f"{len(levels)} for {len(categorical or ())} columns",
            "give them in the order of categorical=",
        )
    return tuple(tuple(map(str, one)) for one in levels)
