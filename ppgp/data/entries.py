"""Entries of an array: which are missing, which are no real numbers, and in which row."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from numbers import Number
from typing import Any, NoReturn

import numpy as np

from ..errors import DataError, listed

LARGEST = np.finfo(float).max
ENCODE = "encode categories as numbers (one column per category), drop the column, or mend the row"


def real_numbers(array: np.ndarray, what: str) -> np.ndarray:
    """The array with text and objects read as numbers; None, NA and NaT of objects become NaN.

    Raises:
        DataError: naming the first entry that is no real number, and its row.
    """
    kind = array.dtype.kind
    if kind in "mM":
        raise DataError(f"numbers in {what}", "dates", "count days or seconds from a start date")
    if kind == "c":
        refuse_complex(what)
    if kind in "fiub":
        return array
    if kind not in "OUS":
        raise DataError(
            f"numbers in {what}", f"entries of type {array.dtype}", "pass one column per field"
        )
    flat = [
        _number(entry, position, array, what)
        for position, entry in enumerate(array.ravel().tolist())
    ]
    return np.array(flat, dtype=float).reshape(array.shape)


def _number(entry: Any, position: int, array: np.ndarray, what: str) -> float:
    if is_missing(entry):
        return float("nan")
    if isinstance(entry, complex):
        refuse_complex(what)
    place = place_of(position, array.shape)
    if isinstance(entry, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64):
        raise DataError(
            f"numbers in {what}", f"a date in {place}", "count days or seconds from a start date"
        )
    try:
        return float(entry)
    except OverflowError:
        raise DataError(
            f"numbers up to {LARGEST:.2g} in {what}", f"a larger one in {place}", "use another unit"
        ) from None
    except (TypeError, ValueError):
        raise DataError(f"numbers in {what}", f"{entry!r:.60} in {place}", ENCODE) from None


def is_missing(entry: Any) -> bool:
    """Whether it is None, NaN, or the NA or NaT of pandas."""
    if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(entry, float) and math.isnan(entry)


def reads_as_number(entry: Any) -> bool:
    """Whether it is missing, a number, or text that spells one."""
    if is_missing(entry) or isinstance(entry, Number):
        return True
    try:
        float(entry)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def missing_rows(array: np.ndarray) -> list[int]:
    """The rows of an array of objects that miss an entry."""
    width = max(1, array[:1].size)
    return sorted(
        {i // width for i, entry in enumerate(array.ravel().tolist()) if is_missing(entry)}
    )


def place_of(position: int, shape: Sequence[int]) -> str:
    """Where an entry of the flat array stands: ``row 3``, or ``row 3, column 1``."""
    where = np.unravel_index(position, tuple(shape)) if shape else (0,)
    row, column = int(where[0]), ", ".join(str(int(i)) for i in where[1:])
    return f"row {row}, column {column}" if column else f"row {row}"


def refuse_complex(what: str) -> NoReturn:
    raise DataError(
        f"real numbers in {what}", "complex ones", "pass real and imaginary parts as two columns"
    )


def refuse_masked(mask: np.ndarray, what: str) -> None:
    """Raises DataError where an entry is masked."""
    if mask.any():
        rows = np.flatnonzero(mask.reshape(len(mask), -1).any(1)).tolist() if mask.ndim else [0]
        do = "drop those rows, or fill them with .filled()"
        raise DataError(f"no masked entries in {what}", f"some in {listed(rows, 'row')}", do)
