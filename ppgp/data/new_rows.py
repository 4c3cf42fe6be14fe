"""New rows in the order of the training columns, and their columns with roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..tables.names import refuse_twice
from .categories import Levels, recoded
from .columns import inputs_of, positions
from .dataset import Dataset
from .entries.arrays import as_pandas, labels_of
from .groups import codes_by, labels_by
from .roles import ROLES
from .stream.stream import Stream

__all__ = ["checked_roles", "in_order", "joined", "read", "refuse_without", "roles_of"]

NEEDED = tuple(name for name, role in ROLES.items() if role.needed)


def read(X: Any, train: Dataset) -> tuple[Any, dict[str, Any]]:
    """Return new rows with their columns in the order of the training columns, and their roles.

    Args:
        X: A Dataset, a frame or an array. An array is returned as it is, and holds no roles.
        train: The training rows.

    Returns:
        The rows as ``in_order`` returns them, and the columns as ``roles_of`` returns them.

    Raises:
        UnknownName: If a column is missing.
        DataError: If a column is not in the training data, or X is a stream or a path.
    """
    if type(X) is np.ndarray:
        return X, {}
    if isinstance(X, str | PathLike | Stream):
        raise _rows_in_files(X)
    X = as_pandas(X)
    if not isinstance(X, Dataset) and labels_of(X) is None:
        return X, {}
    if train.design is not None:
        X = train.design.read(X)
    names, levels = train.feature_names, train.levels_by_name
    others = (*train.names_of_roles.values(), *(train.groups or ()))
    rows = in_order(X, names, train.target_name, others, levels)
    return rows, roles_of(X, train)


def _rows_in_files(X: str | PathLike[str] | Stream) -> DataError:
    """Return the error for rows that are in files."""
    got = "a Stream" if isinstance(X, Stream) else f"the path {str(X)!r}"
    do = 'call posterior.predict_to(rows, "out.parquet"), which predicts the rows of files'
    return DataError("new rows in memory", got, do)


def in_order(
    X: Any,
    names: Sequence[str] | None,
    target: str | None = None,
    others: Iterable[str] = (),
    levels: Levels = MappingProxyType({}),
) -> Any:
    """Return new rows [m, d] with their columns in the order of ``names``, in their own units.

    The columns of a frame and of a Dataset are found by name; an array is returned as it is.
    Without names, a frame whose columns are numbered 0 .. d - 1 is read in that order.

    Args:
        X: The new rows.
        names: The names of the training columns; None if they have none.
        target: The name of the target, which a frame may hold too.
        others: The names of columns with roles, which a frame may hold too.
        levels: The levels of the training columns of categories, by name. Text becomes codes, and
            other codes of the same levels become those of the training rows.

    Raises:
        UnknownName: If a column is missing.
        DataError: If a column is not among ``names``, ``target`` and ``others``, or a name occurs
            twice.

    Examples:
        >>> import pandas as pd
        >>> from ppgp import data, errors
        >>> rows = pd.DataFrame({"dose": [3.0], "age": [40.0], "response": [0.1]})
        >>> data.in_order(rows, ("age", "dose"), target="response")
        tensor([[40.,  3.]], dtype=torch.float64)
        >>> try:
        ...     data.in_order(rows, ("age", "doses"), target="response")
        ... except errors.UnknownName as error:
        ...     print(error)
        expected the columns age, doses of the training rows, got no column doses among columns
        dose, age, response: rename 'dose', or add 'doses'
    """
    if isinstance(X, Dataset):
        own = X.feature_names
        rows = _with_codes(X, levels)
        if names is None or own is None or own == tuple(names):
            return rows
        return rows[:, positions(own, names)]
    X = as_pandas(X)
    labels = labels_of(X)
    if labels is None:
        return X
    refuse_twice(map(str, labels))
    numbers = list(range(len(labels)))
    if names is None and labels != numbers and set(labels) == set(numbers):
        names = tuple(map(str, numbers))
    if names is None:
        return X
    return inputs_of(X, names, (target, *others), levels)


def _with_codes(table: Dataset, levels: Levels) -> Tensor:
    """Return the rows of a table, with the codes that the training levels have."""
    own, names = table.levels_by_name, list(table.feature_names or ())
    other = {
        names.index(name): (known, levels[name])
        for name, known in own.items()
        if name in levels and known != levels[name]
    }
    return recoded(table.X, other) if other else table.X


def roles_of(rows: Any, train: Dataset) -> dict[str, Any]:
    """Return ``{role: column}`` of what new rows hold for ``predict``, groups as labels.

    Args:
        rows: A Dataset, a frame or an array.
        train: The training rows, whose names the columns of a frame have.
    """
    if isinstance(rows, Dataset):
        found = rows.for_prediction
        if rows.groups is not None:
            found["groups"] = labels_by(rows.groups, rows.group_levels or {})
        return found
    labels = {str(label): label for label in labels_of(rows) or []}
    named = train.names_of_roles
    found = {
        role: rows[labels[named[role]]].to_numpy()
        for role in ROLES
        if ROLES[role].predicts and named.get(role) in labels
    }
    groups = {name: rows[labels[name]] for name in train.groups or () if name in labels}
    return found | ({"groups": groups} if groups else {})


def checked_roles(columns: Mapping[str, Any], train: Dataset, rows: Tensor) -> dict[str, Any]:
    """Return the checked columns with roles of new rows, in the units of the data.

    Args:
        columns: ``{role: column}``, groups as labels.
        train: The training rows.
        rows: The new rows [m, d].

    Raises:
        DataError: If a column is wrong, or the training rows have one that is needed and is not
            among them, or do not have one that is.
    """
    refuse_without(columns, train)
    checked = {}
    for name, column in columns.items():
        if name == "groups":
            column = codes_by(column, train.group_levels or {})
        checked[name] = ROLES[name].check(column, len(rows), rows)
    return checked


def joined(tables: Sequence[Dataset], train: Dataset) -> dict[str, Any]:
    """Return ``{role: column}`` of the rows of several tables, one after the other.

    A table without known noise has noise 0.

    Args:
        tables: The tables.
        train: The training rows.

    Raises:
        DataError: If a table lacks what the training rows have.
    """
    parts = [roles_of(table, train) for table in tables]
    columns: dict[str, Any] = {}
    for part in parts:
        refuse_without(part, train)
    for name in dict.fromkeys(name for part in parts for name in part):
        pairs = zip(tables, parts, strict=True)
        several = [part.get(name, table.y.new_zeros(table.n)) for table, part in pairs]
        if name == "groups":
            columns[name] = {g: [one for part in several for one in part[g]] for g in several[0]}
        else:
            columns[name] = torch.cat(several)
    return columns


def refuse_without(
    columns: Mapping[str, Any], train: Dataset, roles: Iterable[str] | None = None
) -> None:
    """Refuse new rows without what the training rows have, or with what they do not have.

    Args:
        columns: ``{role: column}`` of the new rows.
        train: The training rows.
        roles: The roles to compare; None: those that a prediction needs.

    Raises:
        DataError: Naming the role.
    """
    if roles is None:
        roles = NEEDED
    for name in roles:
        fitted = getattr(train, name) is not None
        if fitted and columns.get(name) is None:
            column = train.names_of_roles.get(name)
            if name == "groups":
                column = ", ".join(train.groups or ())
            do = f"pass {name}=, or a Dataset"
            if column:
                do = f"pass {name}=, a Dataset, or a table with the column {column}"
            raise DataError(f"{name} of the new rows, as the training rows have it", "none", do)
        if ROLES[name].needed and not fitted and name in columns:
            raise DataError(
                f"new rows without {name}, as the training rows have none",
                name,
                f"fit a Dataset with {name}, or leave it out",
            )
