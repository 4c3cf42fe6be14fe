"""Columns by name: what a frame calls them, and new rows put into the order of the training rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, PpgpError, UnknownName, listed, nearest
from .arrays import as_tensor
from .entries import is_missing, reads_as_number, real_numbers, refuse_complex

LIKE = 0.8  # how alike two names must be for one to be taken for the other
LEVEL = "="  # between a column and its level in the name of a one-hot column


def labels_of(frame: Any) -> list[Any] | None:
    """The labels of a frame's columns; None for what is no frame."""
    found = getattr(frame, "column_names", getattr(frame, "columns", None))
    return None if found is None else list(found)


def names_of(frame: Any) -> tuple[str, ...] | None:
    """The names of a frame's columns; None for an array, and where columns are only counted: 0, 1, ..., d - 1.

    Raises:
        DataError: if two columns share a name.
    """
    labels = labels_of(frame)
    if labels is None or labels == list(range(len(labels))):
        return None
    names = tuple(map(str, labels))
    refuse_twice(names)
    return names


def refuse_twice(names: Iterable[str]) -> None:
    """Raises DataError where two columns share a name."""
    names = list(names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            "different column names", f"{listed(twice, 'column')} more than once", "rename them"
        )


def name_of(y: Any) -> str | None:
    """The name of a series, or of the one column of a frame."""
    names = names_of(y)
    if names is not None:
        return names[0] if len(names) == 1 else None
    name = getattr(y, "name", None)
    return None if name is None or callable(name) else str(name)


def indicators(inputs: Any) -> Any:
    """A DataFrame with each column of text or categories as one column of 0 and 1 per level, named ``column=level``."""
    import pandas as pd

    text = [c for c in inputs.columns if inputs[c].dtype.kind not in "fiubmM"]
    missing = [str(c) for c in text if bool(inputs[c].isna().any())]
    if missing:
        raise DataError(
            "a category in every row",
            f"missing ones in {listed(missing, 'column')}",
            "drop those rows, or name them",
        )
    return pd.get_dummies(inputs, columns=text, prefix_sep=LEVEL, dtype=float)


def numeric(frame: Any) -> Any:
    """A DataFrame of numbers, with objects that are numbers read as such: Decimals, integers beyond 64 bits.

    Raises:
        DataError: naming the columns that hold something else, and the first entry that is no number.
    """
    import pandas as pd

    odd: list[tuple[str, str]] = []
    read: dict[Any, Any] = {}
    for label in frame.columns:
        column = frame[label]
        if column.dtype.kind in "fiub":
            continue
        if column.dtype.kind == "c":
            refuse_complex(f"column {label}")
        entries = column.to_numpy(dtype=object)
        numbers = all(is_missing(entry) or isinstance(entry, Number) for entry in entries)
        if numbers and not isinstance(column.dtype, pd.CategoricalDtype):
            read[label] = real_numbers(entries, f"column {label}")
        else:
            row = next((i for i, entry in enumerate(entries) if not reads_as_number(entry)), 0)
            odd.append((str(label), f"{entries[row]!r:.60} in row {row}"))
    if odd:
        raise DataError(
            "numbers in every input column",
            f"text or dates in {listed([name for name, _ in odd], 'column')}",
            f"drop the column, make one column of 0 and 1 per category (Dataset.from_frame does, with one_hot=True), "
            f"or mend {odd[0][1]}",
        )
    return (
        pd.DataFrame({label: read.get(label, frame[label]) for label in frame.columns})
        if read
        else frame
    )


class MissingColumns(UnknownName):
    """New rows lack columns that the fit has."""

    def __init__(
        self, missing: Sequence[str], names: Sequence[str], present: Iterable[str]
    ) -> None:
        missing, present = list(dict.fromkeys(missing)), list(present)
        near = nearest(missing[0], [name for name in present if name not in names], LIKE)
        do = f"rename {near!r}, or add {missing[0]!r}" if near else "add what is missing"
        got = f"no {listed(missing, 'column')} among {listed(present, 'column') if present else 'no columns'}"
        PpgpError.__init__(self, f"the {listed(names, 'column')} of the fit", got, do)


def positions(own: Sequence[str], names: Sequence[str]) -> list[int]:
    """Where each of the ``names`` stands among a table's own.

    Raises:
        UnknownName: if one is missing.
        DataError: if there is one more.
    """
    missing = [name for name in names if name not in own]
    if missing:
        raise MissingColumns(missing, names, own)
    _refuse_foreign([name for name in own if name not in names], names)
    return [own.index(name) for name in names]


def _refuse_foreign(foreign: Sequence[str], names: Sequence[str]) -> None:
    if foreign:
        known = listed(names, "column")
        raise DataError(
            f"the {known} of the fit alone",
            f"{listed(foreign, 'column')} too",
            "drop what the fit has not seen",
        )


def inputs_of(
    frame: Any, names: Sequence[str], target: str | None = None, noise: str | None = None
) -> Tensor:
    """X [n, d] from a frame, column by column; ``column=level`` is 1 where the column holds that level.

    Args:
        target, noise: columns that the frame may hold too, and that are not looked at.

    Raises:
        UnknownName: if a column is missing.
        DataError: if a column is not among ``names``, or holds a level that ``names`` does not have.
    """
    columns: list[Tensor] = []
    levels: dict[str, set[str]] = {}
    present = {str(label): label for label in labels_of(frame) or []}
    refuse_twice(map(str, labels_of(frame) or []))
    for name in names:
        head, _, level = name.partition(LEVEL)
        if name in present:
            columns.append(as_tensor(frame[present[name]].to_numpy(), f"column {name}"))
        elif level and head in present:
            levels.setdefault(head, set()).add(level)
            columns.append(
                as_tensor((frame[present[head]].astype(str) == level).to_numpy(dtype=float), name)
            )
        else:
            absent = [
                one
                for one in names
                if one not in present and one.partition(LEVEL)[0] not in present
            ]
            raise MissingColumns([one.partition(LEVEL)[0] for one in absent], names, present)
    _refuse_foreign(
        [name for name in present if name not in (*names, *levels, target, noise)], names
    )
    for head, known in levels.items():
        new = sorted(set(frame[present[head]].astype(str)) - known)
        if new:
            raise DataError(
                f"levels of {head} among {', '.join(sorted(known))}",
                listed(new, "level"),
                "the fit has never seen them",
            )
    return torch.stack(columns, 1)
