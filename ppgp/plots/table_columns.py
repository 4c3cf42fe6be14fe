"""The training table of a posterior, and the names of its columns and of y."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import NotApplicable, UnknownName
from ..posterior.posterior import Posterior


def column_names(data: Any) -> list[str]:
    """Return the names of the columns of X of a table; x0, x1, ... where they have none."""
    return list(data.feature_names or [f"x{k}" for k in range(data.d)])


def target_name(data: Any) -> str:
    """Return the name of y."""
    return getattr(data, "target_name", None) or "y"


def column_numbers(data: Any, columns: Sequence[int | str]) -> list[int]:
    """Return the numbers of columns of X that are given by number or by name.

    Raises:
        UnknownName: If there is no such column.
    """
    names = column_names(data)
    numbers = []
    for column in columns:
        if isinstance(column, str) and column in names:
            numbers.append(names.index(column))
        elif isinstance(column, int) and -data.d <= column < data.d:
            numbers.append(column % data.d)
        else:
            raise UnknownName("column of X", str(column), names)
    return numbers


def table_of(posterior: Posterior) -> Any:
    """Return the training table.

    Raises:
        NotApplicable: If the posterior is that of a program.
    """
    if not posterior.data.is_table:
        do = "plot the draws or the replicates of the program"
        raise NotApplicable("a model on a table for this figure", "a program", do)
    return posterior.data


def inputs_and_targets(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Return X [n, d] and y [n] of the training rows, in the units of the data."""
    data = table_of(posterior)
    X = posterior.scaler.inputs_back(data.X).double().cpu().numpy()
    return X, posterior.scaler.targets_back(data.y).double().cpu().numpy()
