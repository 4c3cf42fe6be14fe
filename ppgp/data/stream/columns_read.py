"""Which columns of a table with more of them a prediction reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..dataset import Dataset
from ..entries.dates import source_of
from ..roles import ROLES

__all__ = ["columns_read", "columns_without_blanks", "names_read"]


def names_read(train: Dataset) -> set[str]:
    """Return the names of columns that are read; without names of inputs, of the others.

    An input that was made of categories or dates has the name of that column too, and those of a
    formula the names of its variables.

    Args:
        train: The training rows.
    """
    names = train.feature_names or ()
    made = {name.partition("=")[0] for name in names} | {source_of(name) or "" for name in names}
    if train.design is not None:
        made |= {str(name) for name in train.design.spec.required_variables}
    return {*names, *made, *train.names_of_roles.values(), *(train.groups or ())}


def columns_read(
    labels: Iterable[Any], train: Dataset, excluded: Iterable[str | None]
) -> list[Any]:
    """Return the columns that are read, in the order of the table.

    Training rows whose columns have names take the columns of these names. Any others take all
    columns but the excluded ones.

    Args:
        labels: The labels of the columns of the table.
        train: The training rows.
        excluded: Names of columns that are no inputs.
    """
    if not train.feature_names:
        return [label for label in labels if label not in set(excluded)]
    names = names_read(train)
    return [label for label in labels if str(label) in names]


def columns_without_blanks(
    labels: Iterable[Any], train: Dataset, excluded: Iterable[str | None]
) -> list[Any]:
    """Return the columns that are read and need a value in every row.

    Args:
        labels: The labels of the columns of the table.
        train: The training rows.
        excluded: Names of columns that are no inputs.
    """
    labels, excluded = list(labels), list(excluded)
    optional = {name for role, name in train.names_of_roles.items() if not ROLES[role].predicts}
    if train.missing == "keep":
        names = train.feature_names or tuple(map(str, labels))
        optional |= {*names, *(source_of(name) or "" for name in names)}
    left_out = optional | {name for name in excluded if name is not None}
    return [one for one in columns_read(labels, train, excluded) if str(one) not in left_out]
