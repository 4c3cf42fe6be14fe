"""The parts of a frame: inputs, the target, and columns with roles; its blank cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, SettingError, UnknownName, an, counted
from ..tables.cells import fill_or_keep, in_one, no_values, places_of, refuse_quantity
from ..tables.names import check_asked, refuse_no_rows
from ..tables.wrong_rows import WrongRows, numbered
from .categories import coded
from .columns import indicators, numeric
from .entries.arrays import as_pandas
from .entries.dates import (
    holds_dates,
    refuse_no_times,
    refuse_other_dates,
    warn_of_coded_dates,
    with_numbers,
)
from .targets import ordered_categories

T = TypeVar("T")


@dataclass(frozen=True)
class FrameParts:
    """What ``parts_of`` finds in a frame.

    Attributes:
        inputs: A DataFrame of numbers.
        target: The target [n].
        columns: ``{role: column}``, and ``{"groups": {name: labels}}``.
        levels: ``{name: levels}`` of the inputs that are codes of categories.
        rows: The number of each row in the frame, where rows were dropped; None: all are here.
    """

    inputs: Any
    target: Any
    columns: dict[str, Any]
    levels: dict[str, tuple[str, ...]]
    rows: Sequence[int] | None = None

    def built(self, kind: Callable[..., T], *parts: Any, **named: Any) -> T:
        """Return what ``kind`` makes of the parts; its errors name rows of the frame."""
        with numbered(self.rows):
            return kind(*parts, **named)


def check_frame(frame: Any) -> Any:
    """Return a frame of any library as a pandas DataFrame.

    Raises:
        DataError: If it is no frame.
    """
    import pandas as pd

    if hasattr(frame, "collect") and not hasattr(frame, "iloc"):  # a LazyFrame of polars
        raise DataError("a table that is there", an(type(frame).__name__), "pass frame.collect()")
    frame = as_pandas(frame)
    if not isinstance(frame, pd.DataFrame):
        got, do = an(type(frame).__name__), "pass Dataset(X, y) for arrays"
        if hasattr(frame, "to_pandas"):
            do = "pass frame.to_pandas()"
        elif hasattr(frame, "shape"):
            got = "an array"
        raise DataError("a pandas DataFrame", got, do)
    return frame


def with_time_first(frame: Any, time: str, target: str, dates: str) -> tuple[Any, str]:
    """Return a frame whose first column is the time, and the unit of its dates.

    Args:
        frame: A frame of pandas, Arrow or polars.
        time: The column of the time.
        target: The column of the target.
        dates: As ``Dataset.from_frame`` takes it.

    Raises:
        UnknownName: If there is no such column; the message offers the nearest name.
        SettingError: If it is the target.
        DataError: If ``frame`` is no frame, or the times are no dates and no numbers.
    """
    frame = check_frame(frame)
    columns = list(frame.columns)
    if time not in columns:
        if time in frame.index.names or _index_of_dates(frame):
            raise _in_the_index(frame, time)
        raise UnknownName("column", time, columns)
    if time == target:
        raise SettingError("another column than the target as time", repr(time), "name the time")
    if columns.count(time) > 1:
        got = f"{columns.count(time)} columns of the name"
        raise DataError(f"one column {time} as the time", got, "rename or drop the others")
    if not holds_dates(frame[time]):
        refuse_no_times(frame[time], time)
        warn_of_coded_dates(frame[time], time)
    elif dates == "refuse":
        dates = "days"
    return frame[[time, *(column for column in columns if column != time)]], dates


def _index_of_dates(frame: Any) -> bool:
    """Return whether the index of a DataFrame holds dates or periods."""
    import pandas as pd

    return isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex)


def _in_the_index(frame: Any, time: Any) -> DataError:
    """Return the error for times that are in the index of a DataFrame."""
    call = "reset_index()"
    if time not in frame.index.names:
        call = f"reset_index(names={time!r})"
    do = f"make them a column, by frame.{call}, and pass time={time!r}"
    return DataError("the times in a column", "a table with the times in its index", do)


def parts_of(
    frame: Any,
    target: str,
    roles: Mapping[str, str | None],
    groups: Sequence[str] | None,
    categories: str,
    dates: str = "refuse",
    missing: str = "refuse",
    one_hot: bool | Sequence[str] = False,
) -> FrameParts:
    """Return the inputs, the target and the columns with roles of a frame.

    Args:
        frame: A frame of pandas, Arrow or polars.
        target: The column of the target.
        roles: {role: column}; None: no column has it.
        groups: The columns of groupings.
        categories: "refuse", "one-hot" or "codes", as ``Dataset.from_frame`` takes it.
        dates: "refuse" or a unit, as ``Dataset.from_frame`` takes it.
        missing: "refuse", "keep" or "drop", as ``Dataset.from_frame`` takes it.
        one_hot: Whether ``categories`` is "one-hot", or the columns to turn whatever it is.

    Raises:
        UnknownName: If there is no such column; the message offers the nearest name.
        SettingError: If a column has two roles, or an option has another value.
        DataError: If an input column holds text, a value is missing, or two columns share a name.
    """
    frame = check_frame(frame)
    refuse_no_rows(len(frame))
    words = {"missing": missing, "categories": categories, "dates": dates}
    turned = check_asked(list(frame.columns), target, roles, groups, words, one_hot)
    rows = None
    if missing == "drop":
        frame = frame.reset_index(drop=True)
    named = [name for name in roles.values() if name is not None]
    with_roles = [target, *named, *(groups or ())]
    text = "one-hot" if one_hot is True else categories
    try:
        frame = _with_values(frame, with_roles, missing)
    except DataError as error:
        inputs = frame.drop(columns=with_roles)
        raise _with_others(error, inputs, turned, dates, text, frame[target]) from None
    if missing == "drop":
        rows = frame.index.tolist()
    columns: dict[str, Any] = {
        role: frame[name].to_numpy() for role, name in roles.items() if name is not None
    }
    if groups:  # as they are: categories have an order
        columns["groups"] = {str(name): frame[name] for name in groups}
    inputs = frame.drop(columns=with_roles)
    if not len(inputs.columns) and _index_of_dates(frame):
        raise _in_the_index(frame, frame.index.name or "time")
    y = frame[target]
    try:
        with numbered(rows):
            inputs, levels = _numbers(inputs, turned, dates, text)
    except DataError as error:
        raise _with_others(error, None, turned, dates, text, y, rows) from None
    if ordered_categories(y) is None:
        y = y.to_numpy()
    return FrameParts(inputs, y, columns, levels, rows)


def _with_others(
    error: DataError,
    inputs: Any,
    turned: Sequence[Any],
    dates: str,
    categories: str,
    y: Any,
    rows: Sequence[int] | None = None,
) -> DataError:
    """Return the error, with the other faults of the same table in its message.

    Args:
        error: The first fault.
        inputs: The inputs, as a DataFrame; None: the first fault is theirs.
        turned: See ``_numbers``.
        dates: See ``_numbers``.
        categories: See ``_numbers``.
        y: The column of the target.
        rows: The numbers of the rows of y.
    """
    others: list[DataError] = []
    try:
        if inputs is not None:
            _numbers(inputs, turned, dates, categories)
    except WrongRows as other:
        others.append(other)
    except DataError:
        pass  # missing values again
    try:
        with numbered(rows):
            if ordered_categories(y.dropna()) is None and y.dtype.kind == "O":
                refuse_quantity(y.to_numpy())
    except DataError as other:
        others.append(other)
    return in_one([error, *others])


def _numbers(
    inputs: Any, turned: Sequence[Any], dates: str, categories: str
) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Return the inputs of a frame as numbers, and the levels of those that are codes.

    Args:
        inputs: A DataFrame.
        turned: The columns that become one column of 0 and 1 per level.
        dates: "refuse" or a unit.
        categories: "refuse", "one-hot" or "codes".
    """
    if turned:
        inputs = indicators(inputs, turned)
    if dates != "refuse":
        inputs = with_numbers(inputs, dates)
    levels: dict[str, tuple[str, ...]] = {}
    if categories == "one-hot":
        inputs = indicators(inputs)
    elif categories == "codes":
        inputs, levels = coded(inputs)
    if dates != "refuse":
        refuse_other_dates(inputs)
    return numeric(inputs), levels


def _with_values(frame: Any, with_roles: Sequence[Any], missing: str) -> Any:
    """Return the frame whose cells have values, but for those of inputs if ``missing`` is "keep".

    Args:
        frame: A pandas DataFrame.
        with_roles: The columns that are not inputs.
        missing: "refuse", "keep" or "drop".
    """
    if missing == "keep":
        return without_blanks(frame, with_roles, False)
    also = fill_or_keep(bool(frame[list(with_roles)].isna().any(axis=None)))
    return without_blanks(frame, frame.columns, missing == "drop", also)


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
        raise no_values(where, also)
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
    rows: dict[Any, list[int]] = {}
    for name in columns:
        missing = frame[name].isna().to_numpy(dtype=bool)
        if missing.any():
            blank |= missing
            rows[name] = np.flatnonzero(missing).tolist()
    return blank, places_of(rows)
