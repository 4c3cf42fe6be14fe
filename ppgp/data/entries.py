"""Entries of arrays: which are missing or not real numbers, and in which row."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from numbers import Number
from typing import Any, NoReturn

import numpy as np

from ..errors import DataError, listed
from .row_numbers import WrongRows, entry_in

LARGEST = np.finfo(float).max
BOOLEANS = ("true", "false")
DATES_ADVICE = (
    "count days or seconds from a start date, or make years of a column of a table by "
    "Dataset.from_frame(table, target, dates='years')"
)
DECIMAL_COMMA = "write a point in place of each decimal comma (pandas.read_csv has decimal=',')"
ENCODE = (
    "encode categories as numbers (one column per category), drop the column, or correct the row"
)


def real_numbers(array: np.ndarray, what: str) -> np.ndarray:
    """Return the array with text and objects read as numbers.

    None, NA and NaT in an array of objects become NaN.

    Args:
        array: The array.
        what: What it is called in messages.

    Raises:
        DataError: If an entry is not a real number; the message names the first one and its row.
    """
    kind = array.dtype.kind
    if kind in "mM":
        raise DataError(f"numbers in {what}", "dates", DATES_ADVICE)
    if kind == "c":
        refuse_complex(what)
    if kind in "fiub":
        return array
    if kind not in "OUS":
        raise DataError(
            f"numbers in {what}", f"entries of type {array.dtype}", "pass one column per field"
        )
    entries = array.ravel().tolist()
    flat = [_number(entries, position, array.shape, what) for position in range(len(entries))]
    return np.array(flat, dtype=float).reshape(array.shape)


def _number(entries: list[Any], position: int, shape: Sequence[int], what: str) -> float:
    """Return the entry at a position as a float, or raise DataError."""
    entry = entries[position]
    if is_missing(entry):
        return float("nan")
    if isinstance(entry, complex):
        refuse_complex(what)
    if isinstance(entry, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64):
        do = "count days or seconds from a start date"
        raise _refused(f"numbers in {what}", "a date", position, shape, do)
    try:
        return float(entry)
    except OverflowError:
        wanted = f"numbers up to {LARGEST:.2g} in {what}"
        raise _refused(wanted, "a larger one", position, shape, "use another unit") from None
    except (TypeError, ValueError):
        odd = first_odd(entries)
        do = DECIMAL_COMMA if has_decimal_comma(entries[odd]) else ENCODE
        raise _refused(f"numbers in {what}", f"{entries[odd]!r:.60}", odd, shape, do) from None


def _refused(wanted: str, got: str, position: int, shape: Sequence[int], do: str) -> WrongRows:
    """Return the error for the entry at a position of the flattened array."""
    row, *columns = place_of(position, shape)
    also = f", column {', '.join(map(str, columns))}" if columns else ""
    return WrongRows(wanted, entry_in(got, also), [row], do)


def first_odd(entries: Sequence[Any]) -> int:
    """Return the position of the first entry that is no number; of "True" only if all others are.

    A column of booleans with another word is read as text.

    Args:
        entries: Entries, one of which at least does not read as a number.
    """
    odd = [i for i, entry in enumerate(entries) if not reads_as_number(entry)]
    return next((i for i in odd if str(entries[i]).casefold() not in BOOLEANS), odd[0])


def is_missing(entry: Any) -> bool:
    """Return whether an entry is None, NaN, or the NA or NaT of pandas."""
    if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(entry, float) and math.isnan(entry)


def reads_as_number(entry: Any) -> bool:
    """Return whether an entry is missing, a number, or text that spells a number."""
    if is_missing(entry) or isinstance(entry, Number):
        return True
    try:
        float(entry)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def has_decimal_comma(entry: Any) -> bool:
    """Return whether an entry is text such as "1,5"."""
    if not isinstance(entry, str) or entry.count(",") != 1:
        return False
    return reads_as_number(entry.replace(",", "."))


def missing_rows(array: np.ndarray) -> list[int]:
    """Return the rows of an array of objects that have a missing entry."""
    width = max(1, array[:1].size)
    missing = [i for i, entry in enumerate(array.ravel().tolist()) if is_missing(entry)]
    return sorted({i // width for i in missing})


def place_of(position: int, shape: Sequence[int]) -> list[int]:
    """Return the place of an entry of the flattened array: its row, and its columns."""
    where = np.unravel_index(position, tuple(shape)) if shape else (0,)
    return [int(i) for i in where]


def refuse_complex(what: str) -> NoReturn:
    """Raise DataError for complex numbers."""
    raise DataError(
        f"real numbers in {what}", "complex ones", "pass real and imaginary parts as two columns"
    )


def refuse_masked(mask: np.ndarray, what: str) -> None:
    """Raise DataError if an entry is masked.

    Args:
        mask: True where an entry is masked.
        what: What the array is called in messages.
    """
    if not mask.any():
        return
    rows = [0]
    if mask.ndim:
        rows = np.flatnonzero(mask.reshape(len(mask), -1).any(1)).tolist()
    do = "drop those rows, or fill them with .filled()"
    raise DataError(f"no masked entries in {what}", f"some in {listed(rows, 'row')}", do)
