"""Columns of dates as numbers: years, with the date in the name of the column."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DataError

DATES = ("refuse", "years")
YEARS = " (years)"  # ends the name of a column that was made from dates
DAYS = 365.25  # of a year


def years_of(column: Any, name: str) -> np.ndarray:
    """Return dates as years: 2000 + days since 1 January 2000 / 365.25; NaN where one is missing.

    Args:
        column: A column of a frame with dates, or texts such as 2024-05-31 or 2024-05-31 12:30.
        name: Its name.

    Raises:
        DataError: If an entry is no date.
    """
    found = _read(column)
    if found is None:
        do = "write them as 2024-05-31, or count days or seconds from a start date"
        raise DataError(f"dates in column {name}", "other entries", do)
    seconds = (found - np.datetime64("2000-01-01")) / np.timedelta64(1, "s")
    return 2000.0 + np.asarray(seconds, dtype=float) / (86400 * DAYS)


def with_years(frame: Any) -> Any:
    """Return a DataFrame with years in place of each column of dates, ``date (years)`` of date."""
    names = {c: f"{c}{YEARS}" for c in frame.columns if _holds_dates(frame[c])}
    years = {c: years_of(frame[c], str(c)) for c in names}
    return frame.assign(**years).rename(columns=names) if names else frame


def source_of(name: str) -> str | None:
    """Return the column of dates that a column of years was made from; None: not of dates."""
    return name.removesuffix(YEARS) if name.endswith(YEARS) else None


def _holds_dates(column: Any) -> bool:
    """Return whether a column has dates, or texts that all read as dates and not as numbers."""
    if column.dtype.kind in "fiubcm" or not column.notna().any():
        return False
    return _read(column) is not None


def _read(column: Any) -> np.ndarray | None:
    """Return dates, or None if an entry is none."""
    import pandas as pd

    try:
        dates = pd.to_datetime(column, format="ISO8601", utc=True)
    except (ValueError, TypeError, OverflowError):
        return None
    return dates.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
