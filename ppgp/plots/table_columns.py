"""The training table of a posterior, and the names of its columns and of y."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import NotApplicable, SettingError, UnknownName
from ..posterior.posterior import Posterior
from ..runtime.whole_numbers import check_whole_number


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


def columns_of_plane(
    posterior: Posterior, columns: Sequence[int | str], points: int, what: str, do: str
) -> tuple[int, int]:
    """Return the numbers of the two different columns of X that span a plane.

    Args:
        posterior: The posterior of a model on a table.
        columns: The columns, by number or by name.
        points: The number of grid points per side.
        what: What the figure is called, for the message.
        do: What to do with one column of X.

    Raises:
        NotApplicable: If X has one column.
        UnknownName: If there is no such column.
        SettingError: If there are not two columns, or fewer than two grid points.
    """
    data = table_of(posterior)
    if data.d < 2:
        raise NotApplicable(f"at least two columns of X for {what}", "one", do)
    numbers = column_numbers(data, columns)
    if len(numbers) != 2 or numbers[0] == numbers[1]:
        raise SettingError("two different columns of X", repr(columns), "for example (0, 1)")
    check_whole_number("points", points, 2, "for example 60, the grid points per side")
    return numbers[0], numbers[1]


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
