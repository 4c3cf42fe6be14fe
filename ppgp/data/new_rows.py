"""New rows in the order of the training columns, and their known noise."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor

from .categories import Levels, recoded
from .columns import inputs_of, labels_of, positions, refuse_twice
from .dataset import Dataset

__all__ = ["in_order", "noise_of", "read"]


def read(X: Any, train: Dataset) -> tuple[Any, Any]:
    """Return new rows with their columns in the order of the training columns, and their noise.

    Args:
        X: A Dataset, a frame or an array. An array is returned as it is, and holds no noise.
        train: The training rows.

    Returns:
        The rows as ``in_order`` returns them, and the known noise as ``noise_of`` returns it.

    Raises:
        UnknownName: If a column is missing.
        DataError: If a column is not in the training data.
    """
    if not isinstance(X, Dataset) and labels_of(X) is None:
        return X, None
    names, levels = train.feature_names, train.levels_by_name
    rows = in_order(X, names, train.target_name, train.noise_name, levels, train.censored_name)
    return rows, noise_of(X, train.noise_name)


def in_order(
    X: Any,
    names: Sequence[str] | None,
    target: str | None = None,
    noise: str | None = None,
    levels: Levels = MappingProxyType({}),
    censored: str | None = None,
) -> Any:
    """Return new rows with their columns in the order of ``names``.

    The columns of a frame and of a Dataset are found by name; an array is returned as it is.
    Without names, a frame whose columns are numbered 0 .. d - 1 is read in that order.

    Args:
        X: The new rows.
        names: The names of the training columns; None if they have none.
        target: The name of the target, which a frame may hold too.
        noise: The name of the known noise, which a frame may hold too.
        levels: The levels of the training columns of categories, by name. Text becomes codes, and
            other codes of the same levels become those of the training rows.
        censored: The name of the flags of censored targets, which a frame may hold too.

    Raises:
        UnknownName: If a column is missing.
        DataError: If a column is neither among ``names`` nor ``target``, ``noise`` or ``censored``.
    """
    if isinstance(X, Dataset):
        own = X.feature_names
        rows = _with_codes(X, levels)
        if names is None or own is None or own == tuple(names):
            return rows
        return rows[:, positions(own, names)]
    labels = labels_of(X)
    if labels is None:
        return X
    refuse_twice(map(str, labels))
    numbers = list(range(len(labels)))
    if names is None and labels != numbers and set(labels) == set(numbers):
        names = tuple(map(str, numbers))
    if names is None:
        return X
    return inputs_of(X, names, (target, noise, censored), levels)


def _with_codes(table: Dataset, levels: Levels) -> Tensor:
    """Return the rows of a table, with the codes that the training levels have."""
    own, names = table.levels_by_name, list(table.feature_names or ())
    other = {
        names.index(name): (known, levels[name])
        for name, known in own.items()
        if name in levels and known != levels[name]
    }
    return recoded(table.X, other) if other else table.X


def noise_of(rows: Any, name: str | None) -> Any:
    """Return the known noise of new rows.

    Args:
        rows: A Dataset, a frame or an array.
        name: The name of the column of a frame that holds the known noise.

    Returns:
        The standard deviations, or None if the rows have none.
    """
    if isinstance(rows, Dataset):
        return rows.noise_sd
    labels = {str(label): label for label in labels_of(rows) or []}
    if name not in labels:
        return None
    return rows[labels[name]].to_numpy()
