"""Groupings of the rows: labels as codes 0, 1, 2, ... of their levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError, UnknownName, listed
from ..tables.entries import is_missing, label_text
from .entries.arrays import array_of, as_pandas, as_tensor, labels_of

UNKNOWN = -1  # the code of a level that the training rows do not have
GroupLevels = Mapping[str, tuple[str, ...]]


def coded_groups(
    groups: Any, levels: Mapping[str, Sequence[Any]] | None
) -> tuple[dict[str, Tensor] | None, dict[str, tuple[str, ...]] | None]:
    """Return the codes of groupings and their levels.

    Levels are in the order of the categories of a categorical column, else in that of numbers or
    of the alphabet.

    Args:
        groups: ``{name: labels}``, a frame, or None. With levels, codes in place of labels.
        levels: ``{name: levels}``, if groups holds codes.

    Raises:
        SettingError: If groups have no names, or levels are not those of the groups.
        DataError: If a label is missing, or a code has no level.
    """
    if groups is None:
        return None, None
    by_name = _by_name(groups)
    if not by_name:
        return None, None
    if levels is None:
        levels = {name: _levels(labels, name) for name, labels in by_name.items()}
        codes = {name: _codes(labels, levels[name], name) for name, labels in by_name.items()}
        return codes, dict(levels)
    if set(levels) != set(by_name):
        raise SettingError(
            "levels of every grouping", f"those of {listed(list(levels), 'grouping')}", "add them"
        )
    known = {name: tuple(map(label_text, levels[name])) for name in by_name}
    return {name: _given_codes(by_name[name], name, len(own)) for name, own in known.items()}, known


def codes_by(groups: Any, levels: GroupLevels) -> dict[str, Tensor]:
    """Return the codes that the labels of new rows have; -1 for a level without a code.

    Args:
        groups: ``{name: labels}`` or a frame.
        levels: The levels of the training rows.

    Raises:
        SettingError: If groups have no names.
        UnknownName: If the training rows have no grouping of that name.
        DataError: If a grouping of the training rows is not among them.
    """
    by_name = _by_name(groups)
    for name in by_name:
        if name not in levels:
            raise UnknownName("grouping", name, levels)
    missing = [name for name in levels if name not in by_name]
    if missing:
        raise DataError(
            "every grouping of the training rows",
            f"none called {', '.join(missing)}",
            "pass groups={name: labels} with all of them",
        )
    return {name: _codes(by_name[name], own, name) for name, own in levels.items()}


def labels_by(codes: Mapping[str, Tensor], levels: GroupLevels) -> dict[str, list[str | None]]:
    """Return the labels of codes; None for -1."""
    return {
        name: [None if code < 0 else levels[name][code] for code in column.tolist()]
        for name, column in codes.items()
    }


def _by_name(groups: Any) -> dict[str, Any]:
    """Return groupings by name."""
    if isinstance(groups, Mapping):
        return {str(name): labels for name, labels in groups.items()}
    groups = as_pandas(groups)
    labels = labels_of(groups)
    if labels is None:
        raise SettingError(
            "groups as {name: labels}", type(groups).__name__, 'for example {"county": labels}'
        )
    return {str(label): groups[label] for label in labels}


def _entries(labels: Any, name: str) -> list[Any]:
    """Return the labels of a grouping as Python objects."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    array = array_of(labels, f"the groups {name}")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"one label per row in the groups {name}", f"shape {list(array.shape)}", "pass [n]"
        )
    return array.tolist()


def _levels(labels: Any, name: str) -> tuple[str, ...]:
    """Return the levels of labels, of which none is missing."""
    categories = getattr(getattr(labels, "cat", labels), "categories", None)
    entries = _entries(labels, name)
    missing = [row for row, entry in enumerate(entries) if is_missing(entry)]
    if missing:
        raise DataError(
            f"a label in every row of the groups {name}",
            f"none in {listed(missing, 'row')}",
            "drop those rows, or give them a label of their own",
        )
    if categories is not None:
        return tuple(map(label_text, categories))
    different = set(entries)
    numbers = all(isinstance(entry, int | float | np.number) for entry in different)
    return tuple(dict.fromkeys(map(label_text, sorted(different, key=None if numbers else str))))


def _codes(labels: Any, levels: Sequence[str], name: str) -> Tensor:
    """Return the codes of labels; -1 for one without a level, and for a missing one."""
    place = {level: code for code, level in enumerate(levels)}
    entries = _entries(labels, name)
    codes = [UNKNOWN if is_missing(e) else place.get(label_text(e), UNKNOWN) for e in entries]
    return torch.tensor(codes, dtype=torch.int64)


def _given_codes(codes: Any, name: str, count: int) -> Tensor:
    """Return codes after a check that each is -1 or that of a level."""
    numbers = as_tensor(codes, f"the groups {name}")
    wrong = ~((numbers >= UNKNOWN) & (numbers < count) & (numbers == numbers.round()))
    rows = torch.nonzero(wrong).reshape(-1).tolist()
    if rows:
        raise DataError(
            f"codes 0 .. {count - 1} in the groups {name}, or -1 for an unknown level",
            f"others in {listed(rows, 'row')}",
            "pass labels, without group_levels",
        )
    return numbers.long()
