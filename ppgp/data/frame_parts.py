"""The parts of a frame: inputs, the target, and columns with roles; its blank cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, SettingError, UnknownName, an, counted, listed
from .categories import coded
from .columns import check_word, indicators, numeric, refuse_no_rows, refuse_twice
from .entries.arrays import as_pandas
from .entries.dates import DATES, refuse_other_dates, with_numbers
from .entries.row_numbers import WrongRows, numbered
from .roles import ROLES
from .targets import ordered_categories, refuse_quantity

T = TypeVar("T")
CATEGORIES = ("refuse", "one-hot", "codes")
MISSING = ("refuse", "keep", "drop")
SHOWN = 3  # columns that a message names


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
    if hasattr(target, "ndim"):
        do = "pass its name"
        raise SettingError("the name of the target's column", f"{an(type(target).__name__)}", do)
    if isinstance(groups, str):
        raise SettingError("a list of columns as groups", repr(groups), f"write [{groups!r}]")
    taken = [
        ("target", target),
        *((role, name) for role, name in roles.items() if name is not None),
    ]
    taken += [("groups", name) for name in groups or ()]
    _check_roles(taken, list(frame.columns))
    refuse_twice(map(str, frame.columns))
    refuse_no_rows(len(frame))
    check_word("categories", categories, CATEGORIES)
    check_word("dates", dates, DATES)
    turned = _columns_to_turn(
        one_hot, [c for c in frame.columns if c not in {name for _, name in taken}]
    )
    rows = None
    if missing == "drop":
        frame = frame.reset_index(drop=True)
    with_roles = [name for _, name in taken]
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
    inputs = frame.drop(columns=[name for _, name in taken])
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
    if not others:
        return error
    parts = [error, *others]
    wanted = "; ".join(part.expected for part in parts)
    got = "; ".join(part.got for part in parts)
    return DataError(wanted, got, "; ".join(part.do for part in parts))


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


def _columns_to_turn(one_hot: bool | Sequence[str], inputs: Sequence[Any]) -> list[Any]:
    """Return the columns that ``one_hot`` names.

    Raises:
        SettingError: If they are one text.
        UnknownName: If one is not among the inputs.
    """
    if isinstance(one_hot, bool):
        return []
    if isinstance(one_hot, str):
        raise SettingError("a list of columns as one_hot", repr(one_hot), f"write [{one_hot!r}]")
    for name in one_hot:
        if name not in inputs:
            raise UnknownName("input column", str(name), map(str, inputs))
    return list(one_hot)


def _with_values(frame: Any, with_roles: Sequence[Any], missing: str) -> Any:
    """Return the frame whose cells have values, but for those of inputs if ``missing`` is "keep".

    Args:
        frame: A pandas DataFrame.
        with_roles: The columns that are not inputs.
        missing: "refuse", "keep" or "drop".
    """
    check_word("missing", missing, MISSING)
    if missing == "keep":
        return without_blanks(frame, with_roles, False)
    also = "or fill them"
    if not bool(frame[list(with_roles)].isna().any(axis=None)):
        also = "fill them, or pass missing='keep' for models.Boosted, whose Trees take NaN"
    return without_blanks(frame, frame.columns, missing == "drop", also)


def _check_roles(roles: Sequence[tuple[str, Any]], columns: Sequence[Any]) -> None:
    """Check that columns with roles exist, and that they differ.

    Args:
        roles: (role, column), the target first.
        columns: The columns of the frame.

    Raises:
        UnknownName: If there is no such column; the message offers the nearest name.
        SettingError: If a column has two roles.
    """
    taken: dict[Any, str] = {}
    for role, name in roles:
        if name not in columns:
            kind = ROLES[role].column if role in ROLES else "target column"
            raise UnknownName(kind, name, map(str, columns))
        if name in taken:
            raise SettingError(
                f"{role} in a column of its own",
                f"the {taken[name]} {name!r}",
                "name another column",
            )
        taken[name] = role


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
