"""Files that hold tables: which are read, and the names of their columns."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from .. import files
from ..errors import DataError, SettingError
from .delimited import Records, records_of
from .names import refuse_no_rows, refuse_twice

__all__ = ["READERS", "STANDARD_INPUT", "TableFile", "is_table", "table_file", "unreadable"]

SEPARATORS = {".csv": ",", ".tsv": "\t"}
BINARY = (".parquet", ".xlsx")
READERS = (*SEPARATORS, *BINARY)
STANDARD_INPUT = "-"


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file that holds a table, before its cells are read.

    Attributes:
        path: The path, or "-".
        kind: Its suffix, in lower case.
        separator: What separates the columns of text.
        records: The records of text; None for a file that is not text.
        columns: The names of the columns; None if only a reader of the whole file knows them.
    """

    path: Path
    kind: str
    separator: str
    records: Records | None
    columns: tuple[str, ...] | None


def is_table(path: Path, sep: str | None = None) -> bool:
    """Return whether ``read_frame`` takes a path: by its suffix, or with ``sep`` any.

    Args:
        path: The path, or "-".
        sep: The character that separates columns; None: that of the suffix.
    """
    return str(path) == STANDARD_INPUT or sep is not None or path.suffix.lower() in READERS


def table_file(path: str | Path, sep: str | None = None) -> TableFile:
    """Return the file of a path, or the standard input, with the names of its columns.

    Args:
        path: The file; "-" for text from the standard input.
        sep: The character that separates columns; None: a comma, or in a .tsv file a tab.

    Raises:
        SettingError: If ``sep`` is not one character, or the file is not text.
        DataError: If there is no such file, it cannot be read or has no rows, a row has another
            number of fields than the header, or a name occurs twice.
    """
    path = Path(path)
    kind = path.suffix.lower()
    _check_separator(path, sep)
    from_input = str(path) == STANDARD_INPUT
    if not from_input:
        if not path.is_file():
            raise DataError("a file to read", files.no_file(path), "check the path")
        if not is_table(path, sep):
            do = "convert it, or pass sep= for a text file of another name"
            raise DataError(f"a {', '.join(READERS)} file", path.name, do)
    separator = sep or SEPARATORS.get(kind, ",")
    if kind in BINARY:
        columns = _names_in_parquet(path) if kind == ".parquet" else None
        return TableFile(path, kind, separator, None, columns)
    name = "the standard input" if from_input else path.name
    try:
        content = sys.stdin.buffer.read() if from_input else path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    records = records_of(content, separator, name)
    refuse_no_rows(len(records.fields), path.name)
    columns = tuple(name or f"Unnamed: {i}" for i, name in enumerate(records.header))
    refuse_twice(columns)
    return TableFile(path, kind, separator, records, columns)


def unreadable(path: Path, error: Exception) -> DataError:
    """Return the error for a file that a reader of its kind could not read."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    wanted = f"a readable {path.suffix.lower()} file"
    return DataError(wanted, f"{path.name} ({reason})", "check the file")


def _check_separator(path: Path, sep: str | None) -> None:
    """Raise SettingError for a separator of a file that is not text, or not of one character."""
    if sep is None:
        return
    if path.suffix.lower() in BINARY:
        raise SettingError("sep of a text file", path.name, "leave sep out")
    if len(sep) != 1 or not sep.isascii() or sep in '"\r\n':
        raise SettingError("one character as sep", repr(sep), "write ',', ';', '|' or a tab")


def _names_in_parquet(path: Path) -> tuple[str, ...] | None:
    """Return the columns of a Parquet file; None if an index of pandas may be among them."""
    import pyarrow
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise unreadable(path, error) from None
    about = schema.pandas_metadata or {}
    if any(isinstance(index, str) for index in about.get("index_columns", ())):
        return None
    return tuple(schema.names)
