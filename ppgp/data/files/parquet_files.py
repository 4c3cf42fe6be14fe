"""Parquet files and what their footers tell: columns, their types, and row groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ... import files
from ...errors import DataError, UnknownName, listed

__all__ = [
    "Piece",
    "footer",
    "holds_numbers",
    "kind_of",
    "parquet_files",
    "pieces_of",
    "types_in",
]

TEXT = (".csv", ".tsv", ".txt")  # what a stream does not read
INDEX = re.compile(r"__index_level_\d+__")  # a column in which pandas keeps the index of a frame


@dataclass(frozen=True)
class Piece:
    """Rows ``start`` to ``stop`` of one row group.

    Attributes:
        file: The file.
        group: The number of the row group in it.
        start: The first row, counted in the row group.
        stop: One past the last row.
    """

    file: Path
    group: int
    start: int
    stop: int

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.stop - self.start


def parquet_files(paths: Any) -> tuple[Path, ...]:
    """Return the files that a path, or a list of paths, names; those of a folder by name.

    In a folder and the folders in it, the files that end in .parquet count, unless their names
    begin with a dot or an underscore.

    Raises:
        DataError: If there is no such file or folder, or a folder without such files.
    """
    if isinstance(paths, str | PathLike):
        paths = [paths]
    wanted = "a Parquet file, a folder of them, or a list of files"
    if not isinstance(paths, Iterable) or hasattr(paths, "columns"):
        do = "pass a path as text; rows in memory are a ppgp.Dataset"
        raise DataError(wanted, type(paths).__name__, do)
    found: list[Path] = []
    for path in paths:
        if not isinstance(path, str | PathLike):
            raise DataError(wanted, type(path).__name__, "pass paths as text")
        found += _files_at(Path(path))
    if not found:
        raise DataError(wanted, "an empty list", "name at least one file")
    twice = sorted({str(one) for one in found if found.count(one) > 1})
    if twice:
        raise DataError("each file once", f"{listed(twice, 'file')} again", "name it once")
    return tuple(found)


def _files_at(path: Path) -> list[Path]:
    """Return the files that one path names."""
    if path.is_dir():
        found = sorted(one for one in path.rglob("*.parquet") if one.is_file())
        inside = [one.relative_to(path) for one in found]
        shown = [one for one in inside if not any(part[0] in "._" for part in one.parts)]
        if not shown:
            do = "check the path, or name the files"
            raise DataError("a folder with .parquet files", f"none in {path}", do)
        return [path / one for one in shown]
    if not path.is_file():
        do = "pass the folder, or a list of files" if "*" in path.name else "check the path"
        raise DataError("a Parquet file or a folder", files.no_file(path), do)
    return [path]


def footer(file: Path) -> Any:
    """Return the metadata in the footer of a Parquet file.

    Raises:
        DataError: If it is no Parquet file, or was cut off.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.read_metadata(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise unreadable(file, error) from None


def unreadable(file: Path, error: Exception) -> DataError:
    """Return the error for a file that pyarrow does not read."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    do = "check the file"
    if file.suffix.lower() in TEXT:
        do = "convert it once: pandas.read_csv(path).to_parquet(other)"
    return DataError("a readable Parquet file", f"{file.name} ({reason})", do)


def types_in(file: Path, metadata: Any) -> dict[str, Any]:
    """Return ``{column: its type in Arrow}`` of a file, without the index of pandas.

    Raises:
        DataError: If a name occurs twice.
    """
    schema = metadata.schema.to_arrow_schema()
    names = [name for name in schema.names if not INDEX.fullmatch(name)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        got = f"{listed(twice, 'column')} again in {file.name}"
        raise DataError("different names of columns", got, "rename one of them")
    return {name: schema.field(name).type for name in names}


def holds_numbers(type_: Any) -> bool:
    """Return whether a column of a type in Arrow holds numbers or booleans."""
    from pyarrow import types as of

    numbers = of.is_integer(type_) or of.is_floating(type_) or of.is_decimal(type_)
    return numbers or of.is_boolean(type_)


def kind_of(type_: Any) -> str:
    """Return what a column of a type in Arrow holds: "text", "booleans" or the type itself.

    Categories are those of their values.
    """
    from pyarrow import types

    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    if types.is_boolean(type_):
        return "booleans"
    return str(type_)


def check_same_types(
    columns: Sequence[str], first: tuple[Path, dict[str, Any]], other: tuple[Path, dict[str, Any]]
) -> None:
    """Check that a file has the columns of the first one, and of the same types.

    Args:
        columns: The names of the columns that are read.
        first: The first file, and the types in it.
        other: The other file, and the types in it.

    Raises:
        DataError: If a column is missing, or has another type.
    """
    file, types = other
    missing = [name for name in columns if name not in types]
    if missing:
        wanted = f"{listed(missing, 'column')} in every file"
        do = "write all files with the same columns, or leave the column or the file out"
        raise DataError(wanted, f"{file.name} without", do)
    for name in columns:
        before, here = kind_of(first[1][name]), kind_of(types[name])
        if before != here:
            raise DataError(
                f"column {name} of one type in all files",
                f"{before} in {first[0].name} and {here} in {file.name}",
                "write all files with the same types",
            )


def check_columns_exist(names: Sequence[str], types: dict[str, Any], what: str) -> None:
    """Raise UnknownName for a column that the first file does not have."""
    for name in names:
        if name not in types:
            raise UnknownName(what, str(name), types)


def pieces_of(file: Path, metadata: Any) -> list[Piece]:
    """Return the row groups of a file that have rows."""
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return [Piece(file, group, 0, n) for group, n in enumerate(counts) if n]


def shared_out(pieces: Sequence[Piece], size: int) -> list[Piece]:
    """Return at least ``size`` pieces with the same rows: the largest are halved until there are.

    Args:
        pieces: Pieces with at least ``size`` rows together.
        size: The number of pieces that are needed.
    """
    parts = list(pieces)
    while len(parts) < size:
        largest = max(range(len(parts)), key=lambda i: parts[i].n)
        one = parts[largest]
        middle = (one.start + one.stop) // 2
        parts[largest : largest + 1] = [
            Piece(one.file, one.group, one.start, middle),
            Piece(one.file, one.group, middle, one.stop),
        ]
    return parts
