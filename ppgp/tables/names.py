"""The names of the columns of a table, and the options that name columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import DataError, SettingError, UnknownName, an, listed

__all__ = [
    "NOUNS",
    "check_asked",
    "check_columns",
    "check_roles",
    "check_word",
    "columns_to_turn",
    "no_target",
    "refuse_no_rows",
    "refuse_twice",
]

#: role of a column -> what messages call the column
NOUNS = {
    "noise_sd": "noise column",
    "right_censored": "column of flags",
    "offset": "offset column",
    "trials": "column of trials",
    "weights": "column of weights",
    "groups": "column of groups",
    "ids": "column of row names",
}
#: option -> the words that it takes, the default first
WORDS = {
    "missing": ("refuse", "keep", "drop"),
    "categories": ("refuse", "one-hot", "codes"),
    "dates": ("refuse", "years", "days", "hours", "minutes", "seconds"),
}
KINDS = {"coordinates": "coordinate", "categorical": "categorical column", "time": "time column"}
EXAMPLES = {"time": '["date"]', "coordinates": '["east", "north"]', "categorical": '["colour"]'}


def refuse_twice(names: Iterable[str]) -> None:
    """Raise DataError if two columns share a name."""
    names = list(names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            "different column names", f"{listed(twice, 'column')} more than once", "rename them"
        )


def refuse_no_rows(n: int, where: str = "") -> None:
    """Raise DataError if there are no rows.

    Args:
        n: The number of rows.
        where: The name of the file that they come from.
    """
    if n == 0:
        got = "no rows"
        if where:
            got += f" in {where}"
        raise DataError(
            "at least one row", got, "check the filter, the split or the file that made the table"
        )


def check_word(name: str, given: Any, words: tuple[str, ...]) -> None:
    """Raise SettingError unless an option is one of the words."""
    if given not in words:
        wanted = ", ".join(map(repr, words))
        raise SettingError(
            f"one of {wanted} as {name}", repr(given), f"the default is {words[0]!r}"
        )


def check_columns(
    columns: Sequence[str | int], names: Sequence[str] | None, d: int, what: str
) -> tuple[str | int, ...]:
    """Return columns by name where columns have names, else by number.

    Args:
        columns: The columns, by name or number.
        names: The names of all columns.
        d: The number of columns.
        what: The option that names them, one of ``KINDS``.

    Raises:
        UnknownName: If there is no such name; the message offers the nearest one.
        SettingError: If they are not a list, empty, repeated, or numbers without a column.
    """
    given: tuple[Any, ...] = ()
    if isinstance(columns, Iterable) and not isinstance(columns, str):
        given = tuple(columns)
    for one in given:
        if isinstance(one, str) and one not in (names or ()):
            raise UnknownName(KINDS[what], one, names or map(str, range(d)))
    numbers = [one for one in given if not isinstance(one, str)]
    beyond = [one for one in numbers if type(one) is int and not 0 <= one < d]
    if beyond:
        wanted = f"columns 0 to {d - 1} as {what}"
        raise SettingError(wanted, listed(beyond, "column"), "count columns from 0")
    strange = [one for one in numbers if type(one) is not int]
    kept: tuple[Any, ...] = given
    if names and not strange:
        kept = tuple(one if isinstance(one, str) else names[one] for one in given)
    if strange or not kept or len(set(kept)) < len(kept):
        wanted = f"a list of different columns, by name or counted from 0, as {what}"
        raise SettingError(wanted, repr(columns)[:60], f"for example {EXAMPLES[what]}, or [0, 1]")
    return kept


def check_asked(
    columns: Sequence[Any],
    target: Any,
    roles: Mapping[str, Any],
    groups: Sequence[str] | None,
    words: Mapping[str, str],
    one_hot: bool | Sequence[str],
) -> list[Any]:
    """Check what is asked of a frame by the names of its columns.

    Args:
        columns: The columns of the frame.
        target: The column of the target.
        roles: {role: column}; None: no column has it.
        groups: The columns of groupings.
        words: {"missing", "categories", "dates": the word given}.
        one_hot: The columns to turn into columns of 0 and 1; a boolean: none by name.

    Returns:
        The columns to turn.

    Raises:
        UnknownName: If there is no such column; the message offers the nearest name.
        SettingError: If a column has two roles, or an option has another value.
        DataError: If two columns share a name.
    """
    if hasattr(target, "ndim"):
        got, do = an(type(target).__name__), "pass its name"
        raise SettingError("the name of the target's column", got, do)
    if isinstance(groups, str):
        raise SettingError("a list of columns as groups", repr(groups), f"write [{groups!r}]")
    taken = [("target", target)]
    taken += [(role, name) for role, name in roles.items() if name is not None]
    taken += [("groups", name) for name in groups or ()]
    check_roles(taken, columns)
    refuse_twice(map(str, columns))
    for name, given in words.items():
        check_word(name, given, WORDS[name])
    with_roles = {name for _, name in taken}
    return columns_to_turn(one_hot, [name for name in columns if name not in with_roles])


def check_roles(roles: Sequence[tuple[str, Any]], columns: Sequence[Any]) -> None:
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
            kind = NOUNS.get(role, "target column")
            raise UnknownName(kind, name, map(str, columns))
        if name in taken:
            raise SettingError(
                f"{role} in a column of its own",
                f"the {taken[name]} {name!r}",
                "name another column",
            )
        taken[name] = role


def columns_to_turn(one_hot: bool | Sequence[str], inputs: Sequence[Any]) -> list[Any]:
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


def no_target(names: Iterable[Any]) -> DataError:
    """Return the error for a target column that is required and not given.

    Args:
        names: The columns of the table.
    """
    columns = ", ".join(map(str, names))
    return DataError("the name of the target column", "none", f"pass target=, one of: {columns}")
