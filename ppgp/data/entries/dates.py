"""Columns of dates as numbers, with the unit in the name of the column."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...display.user_warnings import warn
from ...errors import DataError, DataWarning
from ...tables.entries import is_missing, misspelt, reads_as_number
from ...tables.wrong_rows import WrongRows, entry_in

#: unit -> its seconds
UNITS = {"years": 365.25 * 86400, "days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
DATES = ("refuse", *UNITS)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}\b")
OTHER_DATE = re.compile(r"\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}\b")  # such as 31/05/2024 or 31.5.24
QUARTER = re.compile(r"(\d{4})-?Q([1-4])$")  # such as 2024Q1
#: what whole numbers look like, their range, and the option of ``pandas.to_datetime`` for them
LOOKS = (
    ("unix seconds", (1e9, 2.1e9), "unit", "s"),
    ("unix milliseconds", (1e12, 2.1e12), "unit", "ms"),
    ("unix microseconds", (1e15, 2.1e15), "unit", "us"),
    ("unix nanoseconds", (1e18, 2.1e18), "unit", "ns"),
    ("yyyymm", (1900_01, 2100_12), "format", "%Y%m"),
    ("yyyymmdd", (1900_01_01, 2100_12_31), "format", "%Y%m%d"),
)
START = np.datetime64("2000-01-01")


def numbers_of(column: Any, name: str, unit: str) -> np.ndarray:
    """Return dates as numbers; NaN where one is missing.

    Years are 2000 + days since 1 January 2000 / 365.25; other units count from that day.

    Args:
        column: A column of a frame with dates or periods, or texts such as 2024-05-31,
            2024-05-31 12:30, 2024-05 or 2024Q2.
        name: Its name.
        unit: "years", "days", "hours", "minutes" or "seconds".

    Raises:
        DataError: If an entry is no date.
    """
    found = _read(column)
    if found is None:
        do = "write them as 2024-05-31, or count days or seconds from a start date"
        raise _no_date(column, f"dates YYYY-MM-DD in column {name}", do)
    seconds = np.asarray((found - START) / np.timedelta64(1, "s"), dtype=float)
    return seconds / UNITS[unit] + (2000.0 if unit == "years" else 0.0)


def refuse_no_times(column: Any, name: str) -> None:
    """Raise DataError for a column of times that holds neither dates nor numbers.

    Args:
        column: A column of a frame, in which no dates are read.
        name: Its name.
    """
    import pandas as pd

    wanted = "dates or numbers as the time"
    if column.dtype.kind == "m":
        do = "write numbers, such as column / pandas.Timedelta('1D') for days"
        raise DataError(wanted, f"durations in column {name}", do)
    entries = list(column)
    odd = [row for row, entry in enumerate(entries) if not reads_as_number(entry)]
    if not odd and any(isinstance(entry, str) for entry in entries):
        do = "make numbers of it: column.astype(float)"
        raise DataError(wanted, f"numbers as text in column {name}", do)
    if odd and misspelt([entry for entry in entries if not is_missing(entry)]) is None:
        no_dates = [row for row in odd if _read(pd.Series(entries[row : row + 1])) is None]
        row = (no_dates or odd)[0]
        do = (
            "write them as 2024-05-31, 2024-05 or 2024Q2 (pandas.to_datetime(column, format=...) "
            "reads other dates), or count days or seconds from a start date"
        )
        wanted = f"dates YYYY-MM-DD or numbers in column {name}"
        raise WrongRows(wanted, entry_in(f"{entries[row]!r:.60}"), [row], do)


def warn_of_coded_dates(column: Any, name: str) -> None:
    """Issue a DataWarning for times that are whole numbers and look like dates.

    Args:
        column: A column of a frame, in which no dates are read.
        name: Its name.
    """
    import pandas as pd

    values = column.dropna()
    if column.dtype.kind not in "iuf" or values.nunique() < 2 or not (values % 1 == 0).all():
        return
    for look, (low, high), option, value in LOOKS:
        if low <= values.min() and values.max() <= high:
            how: dict[str, Any] = {option: value}
            whole, column_as = values.astype("int64"), "column"
            if option == "format":
                whole, column_as = whole.astype(str), "column.astype(str)"
                if column.dtype.kind == "f":
                    column_as = "column.astype('Int64').astype(str)"
            if pd.to_datetime(whole, errors="coerce", **how).notna().all():
                warn(
                    f"the times in column {name} look like {look}, and are taken as plain numbers: "
                    f"pandas.to_datetime({column_as}, {option}={value!r}) makes dates of them",
                    DataWarning,
                )
            return


def with_numbers(frame: Any, unit: str) -> Any:
    """Return a DataFrame with numbers in place of each column of dates.

    The column ``date`` becomes ``date (years)``, or another unit.

    Raises:
        DataError: If most entries of a column are dates, but not all.
    """
    names = {c: f"{c} ({unit})" for c in frame.columns if holds_dates(frame[c])}
    numbers = {c: numbers_of(frame[c], str(c), unit) for c in names}
    return frame.assign(**numbers).rename(columns=names) if names else frame


def source_of(name: str) -> str | None:
    """Return the column of dates that a column of numbers was made from; None: not of dates."""
    return None if unit_of(name) is None else name.rpartition(" (")[0]


def unit_of(name: str) -> str | None:
    """Return the unit in the name of a column that was made from dates; None: not of dates."""
    head, _, unit = name.rpartition(" (")
    return unit[:-1] if head and unit.endswith(")") and unit[:-1] in UNITS else None


def holds_dates(column: Any) -> bool:
    """Return whether a column has dates, or texts that all read as dates and not as numbers."""
    if column.dtype.kind in "fiubcm" or not column.notna().any():
        return False
    return _read(column) is not None or _mostly_dates(column)


def _mostly_dates(column: Any) -> bool:
    """Return whether more than half of the entries of a column are written as dates."""
    present = [entry for entry in column if not is_missing(entry)]
    dates = sum(isinstance(entry, str) and bool(DATE.match(entry.strip())) for entry in present)
    return 2 * dates > len(present)


def refuse_other_dates(frame: Any) -> None:
    """Raise DataError for a column of dates that are not written YYYY-MM-DD."""
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind not in "fiubcmM" and any(
            isinstance(entry, str) and OTHER_DATE.match(entry.strip()) for entry in column
        ):
            numbers_of(column, str(name), "years")


def _no_date(column: Any, wanted: str, do: str) -> DataError:
    """Return the error for a column, whose first entry that is no date it names."""
    import pandas as pd

    for row in range(len(column)):
        if _read(pd.Series(column.iloc[row : row + 1])) is None:
            return WrongRows(wanted, entry_in(f"{column.iloc[row]!r:.60}"), [row], do)
    return DataError(wanted, "dates of several kinds", do)


def _read(column: Any) -> np.ndarray | None:
    """Return dates, or None if an entry is none; a month or a quarter is its first day."""
    import pandas as pd

    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    try:
        dates = pd.to_datetime(column, format="ISO8601", utc=True)
    except (ValueError, TypeError, OverflowError):
        begins = column.map(_first_day)
        read = bool((begins.notna() | column.isna()).all()) and bool(begins.notna().any())
        return _read(begins) if read else None
    return dates.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")


def _first_day(entry: Any) -> str | None:
    """Return the first day of a quarter that is written 2024Q1 or 2024-Q1; None for all else."""
    found = QUARTER.match(entry) if isinstance(entry, str) else None
    return None if found is None else f"{found[1]}-{3 * int(found[2]) - 2:02d}-01"
