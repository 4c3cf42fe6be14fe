"""Columns by name: the names in a frame, and new rows in the order of the training columns."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from numbers import Number
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..display.user_warnings import warn
from ..errors import (
    DataError,
    DataWarning,
    PpgpError,
    UnknownName,
    listed,
    nearest,
)
from ..tables.cells import no_numbers
from ..tables.entries import is_missing, label_text, real_numbers, refuse_complex
from ..tables.names import refuse_twice
from .categories import Levels, codes_of
from .entries.arrays import as_tensor, labels_of
from .entries.dates import numbers_of, source_of, unit_of

LIKE = 0.8  # similarity from which one name is suggested in place of another
OF_A_FORMULA = re.compile(r"[(\[:]")  # in names such as C(z)[T.b], but not in most others
LEVEL = "="  # separates a column and its level in the name of a one-hot column


def names_of(frame: Any) -> tuple[str, ...] | None:
    """Return the names of a frame's columns.

    Returns:
        The names, or None for an array and for columns that are numbered 0, 1, ..., d - 1.

    Raises:
        DataError: If two columns share a name.
    """
    labels = labels_of(frame)
    if labels is None or labels == list(range(len(labels))):
        return None
    names = tuple(map(str, labels))
    refuse_twice(names)
    return names


def name_of(y: Any) -> str | None:
    """Return the name of a series, or of the only column of a frame; None if there is none."""
    names = names_of(y)
    if names is not None:
        return names[0] if len(names) == 1 else None
    name = getattr(y, "name", None)
    if name is None or callable(name):
        return None
    return str(name)


def indicators(inputs: Any, columns: Sequence[Any] | None = None) -> Any:
    """Return a DataFrame with a column of 0 and 1 for each level of text or categories.

    Such a column is named ``column=level``.

    Args:
        inputs: A pandas DataFrame.
        columns: The columns to turn, also of numbers; None: all that hold text or categories.

    Raises:
        DataError: If a category is missing.
    """
    import pandas as pd

    text = columns
    if text is None:
        text = [c for c in inputs.columns if inputs[c].dtype.kind not in "fiubmM"]
    missing = [str(c) for c in text if bool(inputs[c].isna().any())]
    if missing:
        raise DataError(
            "a category in every row",
            f"missing ones in {listed(missing, 'column')}",
            "drop those rows, or give them a category",
        )
    labels = {c: level_texts(inputs[c]) if c in text else inputs[c] for c in inputs.columns}
    frame = pd.DataFrame(labels, index=inputs.index)
    return pd.get_dummies(frame, columns=list(text), prefix_sep=LEVEL, dtype=float)


def level_texts(column: Any) -> Any:
    """Return a column of numbers as text, 3.0 and 3 as "3"; any other column as it is."""
    if column.dtype.kind not in "fiub":
        return column
    return column.map(label_text).astype(object)


def numeric(frame: Any) -> Any:
    """Return a DataFrame of numbers.

    Objects that are numbers are read as such: Decimals, and integers beyond 64 bits.

    Raises:
        DataError: If a column holds something else; the message names these columns, and the first
            entry that is not a number.
    """
    import pandas as pd

    text: dict[str, list[Any]] = {}
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
            text[str(label)] = entries.tolist()
    if text:
        raise no_numbers(text)
    if not read:
        return frame
    return pd.DataFrame({label: read.get(label, frame[label]) for label in frame.columns})


class MissingColumns(UnknownName):
    """New rows lack columns of the training rows.

    Args:
        missing: The columns that are missing.
        names: The names of the training columns.
        present: The names of the columns of the new rows.
    """

    def __init__(
        self, missing: Sequence[str], names: Sequence[str], present: Iterable[str]
    ) -> None:
        missing, present = list(dict.fromkeys(missing)), list(present)
        near = nearest(missing[0], [name for name in present if name not in names], LIKE)
        do = "add what is missing"
        if near:
            do = f"rename {near!r}, or add {missing[0]!r}"
        if any(OF_A_FORMULA.search(name) for name in missing):
            do = (
                "if a formula made them, which no file holds, pass data.design(rows), where data "
                "is that of GLM.from_formula for the training rows"
            )
        there = listed(present, "column") if present else "no columns"
        got = f"no {listed(missing, 'column')} among {there}"
        PpgpError.__init__(self, f"the {listed(names, 'column')} of the training rows", got, do)


def positions(own: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the positions of ``names`` in a table's own column names.

    Args:
        own: The column names of the table.
        names: The names of the training columns.

    Raises:
        UnknownName: If a column is missing.
        DataError: If a column is not among ``names``.
    """
    missing = [name for name in names if name not in own]
    if missing:
        raise MissingColumns(missing, names, own)
    _refuse_foreign([name for name in own if name not in names], names)
    return [own.index(name) for name in names]


def _refuse_foreign(foreign: Sequence[str], names: Sequence[str]) -> None:
    """Raise DataError for columns that the training rows do not have."""
    if foreign:
        raise DataError(
            f"only the {listed(names, 'column')} of the training rows",
            f"{listed(foreign, 'column')} too",
            "drop the columns that the training rows do not have",
        )


def inputs_of(
    frame: Any,
    names: Sequence[str],
    others: tuple[str | None, ...] = (),
    codes: Levels = MappingProxyType({}),
) -> Tensor:
    """Return X [n, d] from a frame, column by column, in the units of the frame.

    The column ``column=level`` is 1 where the frame's column holds that level, and ``date (years)``
    or ``date (days)`` has the frame's dates in that unit.

    Args:
        frame: The frame.
        names: The names of the d columns.
        others: The names of columns that the frame may hold too, and which are ignored.
        codes: The levels of the columns of categories, whose codes X holds.

    Raises:
        UnknownName: If a column is missing.
        DataError: If a column is not among ``names``, or holds a level that ``names`` does not
            have, or text in place of numbers.

    Examples:
        >>> import pandas as pd
        >>> from ppgp import data
        >>> frame = pd.DataFrame({"colour": ["red", "blue"], "mass": [1.5, 2.0]})
        >>> data.inputs_of(frame, ("mass", "colour=blue", "colour=red"))
        tensor([[1.5000, 0.0000, 1.0000],
                [2.0000, 1.0000, 0.0000]], dtype=torch.float64)
        >>> data.inputs_of(frame, ("mass", "colour"), codes={"colour": ("blue", "red")})
        tensor([[1.5000, 1.0000],
                [2.0000, 0.0000]], dtype=torch.float64)
    """
    columns: list[Tensor] = []
    levels: dict[str, set[str]] = {}
    dates: list[str] = []
    present = {str(label): label for label in labels_of(frame) or []}
    refuse_twice(map(str, labels_of(frame) or []))
    for name in names:
        head, _, level = name.partition(LEVEL)
        if name in present and name in codes:
            entries = entries_of(frame[present[name]])
            columns.append(codes_of(entries, codes[name]))
            _warn_of_numbers(name, entries, columns[-1], codes[name])
        elif name in present:
            columns.append(as_tensor(frame[present[name]], f"column {name}"))
        elif source_of(name) in present:
            dates.append(str(source_of(name)))
            numbers = numbers_of(frame[present[dates[-1]]], dates[-1], str(unit_of(name)))
            columns.append(as_tensor(numbers, f"column {dates[-1]}"))
        elif level and head in present:
            levels.setdefault(head, set()).add(level)
            indicator = level_texts(frame[present[head]]).astype(str) == level
            columns.append(as_tensor(indicator.to_numpy(dtype=float), name))
        else:
            raise MissingColumns(absent(names, present), _given(names, present), present)
    expected = (*names, *levels, *dates, *others)
    _refuse_foreign([name for name in present if name not in expected], names)
    for head, known in levels.items():
        new = sorted(set(level_texts(frame[present[head]]).astype(str)) - known)
        if new:
            raise DataError(
                f"levels of {head} among {', '.join(sorted(known))}",
                listed(new, "level"),
                "the training rows have no such level",
            )
    return torch.stack(columns, 1)


def _warn_of_numbers(name: str, entries: np.ndarray, codes: Tensor, levels: Sequence[str]) -> None:
    """Warn if a column of categories holds numbers, none of which is a level."""
    present = [entry for entry in entries if not is_missing(entry)]
    numbers = bool(present) and all(isinstance(entry, Number) for entry in present)
    if numbers and not bool((codes < len(levels)).any()):
        sentence = (
            f"column {name} holds numbers, none of them among its {listed(levels, 'level')}: all "
            "rows count as a new category; pass the levels, or codes in an array or a Dataset"
        )
        warn(sentence, DataWarning)


def entries_of(column: Any) -> np.ndarray:
    """Return the entries of a frame's column as Python objects."""
    return np.asarray(column.to_numpy(), dtype=object)


def _given(names: Sequence[str], present: Container[str]) -> list[str]:
    """Return the columns that ``names`` are made from, each once, as a frame of new rows has them.

    A column that is present keeps its name, also if it looks like one of a level.
    """
    heads = (source_of(name) or name.partition(LEVEL)[0] for name in names)
    pairs = zip(names, heads, strict=True)
    return list(dict.fromkeys(name if name in present else head for name, head in pairs))


def refuse_missing(names: Sequence[str], present: Sequence[str]) -> None:
    """Raise MissingColumns if a table lacks a column that the columns ``names`` are made from."""
    missing = absent(names, present)
    if missing:
        raise MissingColumns(missing, _given(names, present), present)


def absent(names: Sequence[str], present: Container[str]) -> list[str]:
    """Return the columns of ``names`` that are present neither as such nor as a level's column."""
    missing = []
    for name in names:
        head = source_of(name) or name.partition(LEVEL)[0]
        if name not in present and head not in present:
            missing.append(head)
    return missing
