"""What can be refused of a table before torch and pandas are imported.

``look`` checks the path, the names of columns, and the cells of the first lines of text. Cells that
only pandas reads for certain are left to ``loaded``, which makes a Dataset of what was looked at.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, SettingError, UnknownName, an
from .cells import fill_or_keep, in_one, no_numbers, no_values, places_of, refuse_quantity
from .delimited import Records, is_blank
from .names import check_asked, check_columns, no_target
from .table_files import READERS, TableFile, is_table, table_file

__all__ = ["BUNDLED", "FETCHED", "Asked", "Looked", "check_drop", "look"]

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
FETCHED = ("california", "olivetti")
WITHOUT_FRAME = (*BUNDLED, "olivetti")
FIRST = 1_000_000  # bytes of the first lines
MOST = 8_000_000  # bytes of a table whose cells are all looked at if one of the first is wrong
#: texts that pandas reads as a missing value
MISSING = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN")
    + ("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
)
BOOLEANS = ("true", "false")


@dataclass(frozen=True, eq=False)
class Asked:
    """What is asked of a table.

    Attributes:
        target: The target column; None: that of the data set.
        roles: {role: column} of the columns with roles.
        groups: The columns of groupings.
        words: {"missing", "categories", "dates": the word given}.
        one_hot: The columns to turn into columns of 0 and 1.
        drop: The columns to leave out.
        classes: The labels of the target in their order; None: sorted.
        coordinates: The columns that are places in one space; None: there are none.
        sep: What separates columns; None: that of the suffix.
        time: The input column that is the time, whose dates become days unless ``words`` has
            another unit; None: none is named so.
    """

    target: str | None
    roles: dict[str, str]
    groups: Sequence[str]
    words: dict[str, str]
    one_hot: Sequence[str]
    drop: Sequence[str]
    classes: Sequence[Any] | None
    coordinates: Sequence[str | int] | None
    sep: str | None
    time: str | None

    def __post_init__(self) -> None:
        if self.time is not None and self.words["dates"] == "refuse":
            object.__setattr__(self, "words", {**self.words, "dates": "days"})


@dataclass(frozen=True, eq=False)
class Looked:
    """A table that was looked at.

    Attributes:
        place: The name of a data set, or a path.
        file: The file; None: a data set of scikit-learn.
        asked: What is asked of it.
    """

    place: str
    file: TableFile | None
    asked: Asked


def look(name_or_path: str | Path, asked: Asked) -> Looked:
    """Look at a table, as ``load`` takes it.

    Args:
        name_or_path: The name of a data set, a file, or "-".
        asked: What is asked of it.

    Raises:
        UnknownName: If there is no such data set or column; the message offers the nearest name.
        SettingError: If a column has two roles, or an option does not apply.
        DataError: If the file cannot be read, or a cell cannot be used.
    """
    _check_names(asked)
    _check_place(name_or_path)
    place = str(name_or_path)
    if not is_table(Path(place), asked.sep) or place in BUNDLED:
        _check_data_set(place, asked)
        return Looked(place, None, asked)
    file = table_file(place, asked.sep)
    if file.columns is not None:
        _check_columns(asked, file, file.columns)
    return Looked(place, file, asked)


def check_drop(drop: Sequence[str], columns: Sequence[Any], target: str) -> None:
    """Check the columns of a table that are left out.

    Args:
        drop: Their names.
        columns: The columns of the table.
        target: The column of the target.

    Raises:
        UnknownName: If there is no such column.
        SettingError: If the target is among them, or they are one text.
    """
    if isinstance(drop, str):
        raise SettingError("a list of columns to drop", repr(drop), f"write [{drop!r}]")
    for name in drop:
        if name not in columns:
            raise UnknownName("column to drop", str(name), map(str, columns))
        if name == target:
            raise SettingError("to drop other columns than the target", repr(name), "keep it")


def _check_place(place: Any) -> None:
    """Refuse what is neither a name nor a path, such as a table."""
    if isinstance(place, str | PathLike):
        return
    do = "pass a name or a path as text"
    if hasattr(place, "columns"):
        do = "pass it to ppgp.Dataset.from_frame(frame, target)"
    raise DataError("the name of a data set, or a file", an(type(place).__name__), do)


def _check_names(asked: Asked) -> None:
    """Refuse several targets, and columns that are to be turned and dropped."""
    target: Any = asked.target
    one_hot, drop = asked.one_hot, asked.drop
    if isinstance(target, list | tuple):
        do = "for several: ppgp.data.Outputs.from_frame(ppgp.data.read_frame(path), targets)"
        raise DataError("the name of one target column", repr(target)[:60], do)
    if isinstance(one_hot, str) or isinstance(drop, str):
        return  # refused where they are used
    for name in one_hot:
        if name in drop:
            got = f"{name!r}, which is dropped"
            raise SettingError("an input column in one_hot", got, "leave it out of one of the two")


def _check_data_set(place: str, asked: Asked) -> None:
    """Check that a data set of scikit-learn has the name, and the columns with roles."""
    if place not in (*BUNDLED, *FETCHED) and not place.startswith("openml:"):
        file = f"a {', '.join(READERS[:-1])} or {READERS[-1]} file"
        if Path(place).is_file():
            do = "read a saved posterior by ppgp.load_posterior(path), text of another name by sep="
            got = Path(place).name
            raise DataError(f"the name of a data set, or {file}", got, do)
        raise UnknownName("data set", place, [*BUNDLED, *FETCHED, "openml:NAME", file])
    if place not in WITHOUT_FRAME:
        return
    options = {"classes": asked.classes, "drop": asked.drop, "one_hot": asked.one_hot}
    options = {"groups": asked.groups, **options, "sep": asked.sep, "time": asked.time}
    for name in (*asked.roles, *(name for name, value in options.items() if value)):
        wanted = f"{name} of a file, or of a frame that is fetched"
        raise SettingError(wanted, f"{place!r}", f"leave {name} out")


def _check_columns(asked: Asked, file: TableFile, names: tuple[str, ...]) -> None:
    """Check what is asked of a file by the names of its columns, and its first cells."""
    if asked.target is None:
        raise no_target(names)
    check_drop(asked.drop, names, asked.target)
    kept = [name for name in names if name not in asked.drop]
    if asked.time is not None and asked.time not in kept:
        raise UnknownName("column", asked.time, kept)
    turned = check_asked(
        kept, asked.target, asked.roles, asked.groups, asked.words, asked.one_hot or False
    )
    others = [asked.target, *asked.roles.values(), *asked.groups]
    inputs = [name for name in kept if name not in others]
    as_they_are = asked.words["categories"] == asked.words["dates"] == "refuse" and not turned
    if asked.coordinates is not None and as_they_are:
        check_columns(asked.coordinates, inputs, len(inputs), "coordinates")
    if file.records is not None:
        faults: list[DataError] = []
        for columns in _columns_looked_at(file.records, file.separator, names):
            faults = _faults(columns, inputs, others, asked, turned)
            if not faults:
                break
        if faults:
            raise in_one(faults)


class _Column(NamedTuple):
    """A column of text as pandas reads it.

    Attributes:
        entries: Its entries, NaN where a value is missing.
        missing: The rows without a value.
        kind: "number", "text", or "" where only pandas can tell.
    """

    entries: list[Any]
    missing: list[int]
    kind: str


def _columns_looked_at(
    records: Records, separator: str, names: Sequence[str]
) -> Iterator[dict[str, _Column]]:
    """Yield the columns of the first lines, and then those of all lines unless they are many."""
    content = records.content
    if len(content) > FIRST:
        last = content.rfind(b"\n", 0, FIRST)
        if len(content) > MOST or b'"' in content or last < 0:
            return
        yield _columns(content[:last], separator, names)
    yield _columns(content, separator, names)


def _columns(content: bytes, separator: str, names: Sequence[str]) -> dict[str, _Column]:
    """Return the columns of a text of checked records."""
    reader = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator)
    rows = [record for record in reader if not is_blank(record)][1:]
    if not rows:
        return {}
    cells = zip(*rows, strict=True)
    return {name: _column(list(column)) for name, column in zip(names, cells, strict=True)}


def _column(cells: list[str]) -> _Column:
    """Return the cells of a column as entries, and whether they are numbers or text."""
    missing = [row for row, cell in enumerate(cells) if cell in MISSING]
    entries: list[Any] = list(cells)
    for row in missing:
        entries[row] = math.nan
    kinds = {_kind(cell) for cell in set(cells) - MISSING}
    kind = "number"
    if "" in kinds or {"text", "boolean"} <= kinds or {"number", "boolean"} <= kinds:
        kind = ""
    elif "text" in kinds:
        kind = "text"
    return _Column(entries, missing, kind)


def _kind(cell: str) -> str:
    """Return what a cell surely is: "number", "boolean" or "text"; "" where pandas must tell."""
    if cell.casefold() in BOOLEANS:
        return "boolean"
    try:
        value = float(cell)
    except ValueError:
        return "text" if cell.strip() else ""
    plain = cell.isascii() and "_" not in cell and cell == cell.strip()
    return "number" if plain and not math.isnan(value) else ""


def _faults(
    columns: dict[str, _Column],
    inputs: Sequence[str],
    others: Sequence[str],
    asked: Asked,
    turned: Sequence[str],
) -> list[DataError]:
    """Return what is wrong with the cells of a table; nothing where only pandas can tell.

    Args:
        columns: The columns of the table, by name.
        inputs: The names of the input columns.
        others: The names of the target and of columns with roles.
        asked: What is asked of the table.
        turned: The columns that are turned into columns of 0 and 1.
    """
    read = {name: columns[name] for name in (*inputs, *others) if name in columns}
    if not all(column.kind for column in read.values()):
        return []
    missing, target = asked.words["missing"], str(asked.target)
    needed = others if missing == "keep" else read
    blank = {name: column.missing for name, column in read.items() if name in needed}
    blank = {name: rows for name, rows in blank.items() if rows}
    text = {name: read[name].entries for name in inputs if read.get(name, _EMPTY).kind == "text"}
    free = asked.words["categories"] != "refuse" or asked.words["dates"] != "refuse"
    if (text and (free or turned)) or (blank and missing == "drop"):
        return []
    faults: list[DataError] = []
    if blank:
        also = "or fill them"
        if missing == "refuse":
            also = fill_or_keep(any(name in blank for name in others))
        faults.append(no_values(places_of(blank), also))
    if text:
        faults.append(no_numbers(text))
    y = read.get(target, _EMPTY)
    if y.kind == "text" and (faults or asked.classes is None):
        try:
            refuse_quantity(np.array(y.entries, dtype=object))
        except DataError as error:
            faults.append(error)
    return faults


_EMPTY = _Column([], [], "number")
