"""Blank cells of a table: refused, or their rows dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...display.user_warnings import warn
from ...errors import DataError, DataWarning, counted, listed

__all__ = ["blank_rows", "without_blanks"]

SHOWN = 3  # columns that a message names


def without_blanks(
    frame: Any, columns: Iterable[Any], drop: bool, also: str = "or fill them"
) -> Any:
    """Return a frame whose columns have a value in every row; a row keeps its label.

    Args:
        frame: A pandas DataFrame.
        columns: The columns that need values.
        drop: Whether to drop the rows without one, with a DataWarning that counts them.
        also: What else the user can do, for the message.

    Raises:
        DataError: If a value is missing and its row is not dropped, or every row is dropped.
    """
    blank, where = _blanks(frame, columns)
    if not blank.any():
        return frame
    if not drop:
        do = f"drop those rows with missing='drop', {also}"
        raise DataError("a value in every cell", f"none in {where}", do)
    dropped = f"{int(blank.sum())} of {counted(len(frame), 'row')}"
    if blank.all():
        do = f"leave a column out, {also}"
        raise DataError("a row with a value in every cell", f"none in {where}", do)
    warn(f"dropped {dropped} without a value in {where}", DataWarning)
    return frame[~blank]


def blank_rows(frame: Any, columns: Iterable[Any], what: str) -> np.ndarray:
    """Return which rows [n] of a frame lack a value, with a DataWarning that counts them.

    Args:
        frame: A pandas DataFrame.
        columns: The columns that need values.
        what: What happens to these rows, for the message.

    Raises:
        DataError: If every row lacks one.
    """
    blank, where = _blanks(frame, columns)
    if blank.all():
        raise DataError("a row with a value in every cell", f"none in {where}", "fill them")
    if blank.any():
        some = f"{int(blank.sum())} of {counted(len(frame), 'row')}"
        sentence = f"{some} have no value in {where}: {what}"
        warn(sentence, DataWarning)
    return blank


def _blanks(frame: Any, columns: Iterable[Any]) -> tuple[np.ndarray, str]:
    """Return which rows [n] lack a value, and the words for where: columns, and first rows."""
    blank = np.zeros(len(frame), dtype=bool)
    places = []
    for name in columns:
        missing = frame[name].isna().to_numpy(dtype=bool)
        if missing.any():
            blank |= missing
            places.append(f"column {name}, {listed(np.flatnonzero(missing).tolist(), 'row')}")
    where = "; ".join(places[:SHOWN])
    if len(places) > SHOWN:
        where += f"; and {counted(len(places) - SHOWN, 'other column')}"
    return blank, where
