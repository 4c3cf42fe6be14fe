"""New rows in chunks: of Parquet files, of a Stream, or frames and arrays one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..columns import refuse_missing
from ..dataset import Dataset
from ..entries.arrays import labels_of
from ..entries.dates import source_of
from ..files.parquet_files import (
    Piece,
    check_columns_exist,
    check_same_types,
    footer,
    holds_numbers,
    parquet_files,
    pieces_of,
    types_in,
)
from ..files.parquet_rows import Place, an_empty_cell, check_finite, record_batches, regrouped
from ..roles import ROLES
from .stream import Stream

__all__ = [
    "Chunk",
    "RowsGiven",
    "RowsInFiles",
    "columns_read",
    "columns_without_blanks",
    "names_read",
    "rows_of",
]


@dataclass(frozen=True, eq=False)
class Chunk:
    """New rows that are predicted together.

    Attributes:
        rows: What ``predict`` takes: those without an empty cell.
        blank: [m] bool, which of all rows have an empty cell.
        kept: A table of Arrow [m] of columns that go with the predictions; None: there are none.
    """

    rows: Any
    blank: np.ndarray
    kept: Any = None


@dataclass(frozen=True, eq=False)
class RowsInFiles:
    """New rows in Parquet files.

    Attributes:
        pieces: Where the rows are.
        columns: The columns that are read, in the order in which ``predict`` takes them.
        needed: Those that need a value in every row.
        kept: The columns that go with the predictions.
        named: Whether the training columns have names, so that columns are found by name.
        blanks: Whether a row with an empty cell keeps its place, without a prediction. Otherwise
            it is refused.
        folders: The folders that the source names.
    """

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    needed: frozenset[str]
    kept: tuple[str, ...]
    named: bool
    blanks: bool
    folders: tuple[Path, ...] = ()

    @property
    def n(self) -> int:
        """The number of rows."""
        return sum(piece.n for piece in self.pieces)

    def identity(self) -> list[Any]:
        """Return what tells these rows from others: files with sizes and times, and columns."""
        files = {piece.file: piece.file.stat() for piece in self.pieces}
        return [
            [[str(file.resolve()), s.st_size, s.st_mtime_ns] for file, s in files.items()],
            [[str(p.file.resolve()), p.group, p.start, p.stop] for p in self.pieces],
            [list(self.columns), list(self.kept), self.blanks],
        ]

    def chunks(self, rows: int, skip: int = 0) -> Iterator[Chunk]:
        """Yield the rows in the order of the files, ``rows`` at a time; the last has the rest.

        Args:
            rows: How many at a time.
            skip: How many of the first rows to leave out.

        Raises:
            DataError: If a cell is empty or not finite and such rows are refused; the message names
                column, file, row group and row. If a file cannot be read.
        """
        batches = self._batches(skip)
        for held in regrouped(batches, rows, len, _batch_at):
            yield self._chunk(held)

    def _batches(self, skip: int) -> Iterator[Any]:
        """Yield record batches of Arrow, checked, without the first ``skip`` rows."""
        names = list(dict.fromkeys([*self.columns, *self.kept]))
        for at, batch in record_batches(self.pieces, names, skip):
            if not self.blanks:
                self._refuse_blanks(batch, at)
            yield batch

    def _refuse_blanks(self, batch: Any, at: Place) -> None:
        """Raise DataError if a cell that needs a value has none."""
        import pyarrow

        for name in self.needed:
            column = batch.column(name)
            if column.null_count:
                raise an_empty_cell(column, name, at)
            if pyarrow.types.is_floating(column.type):
                check_finite(column.to_numpy(zero_copy_only=False), name, at)

    def _chunk(self, batches: Sequence[Any]) -> Chunk:
        """Return record batches as one chunk."""
        import pyarrow

        table = pyarrow.Table.from_batches(batches).unify_dictionaries()
        kept = table.select(self.kept) if self.kept else None
        frame = table.select(self.columns).to_pandas(ignore_metadata=True)
        blank = np.zeros(len(frame), dtype=bool)
        if self.blanks:
            for name in self.needed:
                blank |= frame[name].isna().to_numpy(dtype=bool)
            if blank.any():
                frame = frame[~blank]
        return Chunk(frame if self.named else _numbers(frame), blank, kept)


@dataclass(frozen=True, eq=False)
class RowsGiven:
    """New rows that are handed over as frames or arrays, one after the other.

    Attributes:
        parts: The frames or arrays.
    """

    parts: Iterable[Any]
    n = None

    def identity(self) -> None:
        """Return None: nothing tells these rows from others before they are handed over."""
        return

    def chunks(self, rows: int, skip: int = 0) -> Iterator[Chunk]:
        """Yield each part as a chunk, in pieces if it has more than ``rows`` rows.

        Args:
            rows: The most rows of a chunk.
            skip: 0, as the rows begin anew with each call.
        """
        for part in self.parts:
            n = _number_of_rows(part)
            for start in range(0, n, rows):
                here = part if n <= rows else _slice_of(part, slice(start, start + rows))
                yield Chunk(here, np.zeros(min(rows, n - start), dtype=bool))


def rows_of(
    source: Any,
    train: Dataset,
    *,
    excluded: Iterable[str | None] = (),
    kept: Sequence[str] = (),
    blanks: bool = False,
) -> RowsInFiles | RowsGiven:
    """Return the new rows of a source.

    Args:
        source: A Parquet file, a folder, or a list of them; a Stream; a frame or an array, or
            an iterable of them.
        train: The training rows, which say what columns are read.
        excluded: Names of columns that are no inputs, where the training columns have no names.
        kept: Columns of files that go with the predictions.
        blanks: As of ``RowsInFiles``.

    Raises:
        DataError: If the source is none of these, a column is missing in a file or has another type
            there, or one that has to hold numbers does not.
        UnknownName: If a training column is in no file.
    """
    if isinstance(source, Stream):
        return _in_files(source.pieces, train, (*excluded, source.target_name), kept, blanks)
    paths = isinstance(source, str | PathLike)
    if isinstance(source, list | tuple) and source:
        paths = all(isinstance(one, str | PathLike) for one in source)
    if paths:
        files = parquet_files(source)
        pieces = tuple(piece for file in files for piece in pieces_of(file, footer(file)))
        if not pieces:
            raise DataError("at least one row", f"none in {files[0].name}", "check the files")
        named = [source] if isinstance(source, str | PathLike) else source
        folders = tuple(Path(one) for one in named if Path(one).is_dir())
        found = _in_files(pieces, train, excluded, kept, blanks)
        return replace(found, folders=folders)
    if isinstance(source, Dataset) or labels_of(source) is not None or hasattr(source, "shape"):
        return RowsGiven([source])
    if not isinstance(source, Iterable):
        wanted = "Parquet files, a stream, or an iterable of frames or arrays"
        raise DataError(wanted, type(source).__name__, "pass a path as text")
    return RowsGiven(source)


def _in_files(
    pieces: tuple[Piece, ...],
    train: Dataset,
    excluded: Iterable[str | None],
    kept: Sequence[str],
    blanks: bool,
) -> RowsInFiles:
    """Return the rows of pieces of files, whose columns are checked."""
    excluded = (*excluded, train.target_name)
    files = list(dict.fromkeys(piece.file for piece in pieces))
    types = types_in(files[0], footer(files[0]))
    check_columns_exist(kept, types, "column to keep")
    columns = tuple(columns_read(types, train, excluded))
    if train.feature_names:
        refuse_missing(train.feature_names, list(types))
    for file in files[1:]:
        both = (files[0], types), (file, types_in(file, footer(file)))
        check_same_types((*columns, *kept), *both)
    named = bool(train.feature_names)
    plain = set(train.feature_names or columns) - set(train.levels_by_name)
    for name in columns:
        if name in plain:
            _check_numbers(name, types[name], files[0].name)
    needed = frozenset(columns_without_blanks(types, train, excluded))
    return RowsInFiles(pieces, columns, needed, tuple(kept), named, blanks)


def _check_numbers(name: str, type_: Any, file: str) -> None:
    """Raise DataError for a column that has to hold numbers and does not."""
    from pyarrow import types

    if not (holds_numbers(type_) or types.is_null(type_)):
        do = "write numbers in its place, as the training rows have them"
        raise DataError(f"numbers in column {name}", f"the type {type_} in {file}", do)


def _batch_at(batch: Any, rows: slice) -> Any:
    """Return some rows of a record batch of Arrow."""
    return batch.slice(rows.start, rows.stop - rows.start)


def _numbers(frame: Any) -> np.ndarray:
    """Return a DataFrame of numbers as an array [m, d]."""
    array = frame.to_numpy()
    return array if array.dtype.kind == "f" else array.astype(float)


def _number_of_rows(part: Any) -> int:
    """Return the number of rows of a frame, an array or a Dataset."""
    if isinstance(part, Dataset):
        return part.n
    shape = getattr(part, "shape", None)
    if shape is None or len(shape) != 2:
        got = type(part).__name__ if shape is None else f"shape {list(shape)}"
        raise DataError("frames or arrays [m, d] one after the other", got, "pass rows of inputs")
    return int(shape[0])


def _slice_of(part: Any, rows: slice) -> Any:
    """Return some rows of a frame, an array or a Dataset."""
    if isinstance(part, Dataset):
        return part.rows(rows)
    return part[rows]


def names_read(train: Dataset) -> set[str]:
    """Return the names of columns that are read; without names of inputs, of the others.

    An input that was made of categories or dates has the name of that column too, and those of a
    formula the names of its variables.

    Args:
        train: The training rows.
    """
    names = train.feature_names or ()
    made = {name.partition("=")[0] for name in names} | {source_of(name) or "" for name in names}
    if train.design is not None:
        made |= {str(name) for name in train.design.spec.required_variables}
    return {*names, *made, *train.names_of_roles.values(), *(train.groups or ())}


def columns_read(
    labels: Iterable[Any], train: Dataset, excluded: Iterable[str | None]
) -> list[Any]:
    """Return the columns that are read, in the order of the table.

    Training rows whose columns have names take the columns of these names. Any others take all
    columns but the excluded ones.

    Args:
        labels: The labels of the columns of the table.
        train: The training rows.
        excluded: Names of columns that are no inputs.
    """
    if not train.feature_names:
        return [label for label in labels if label not in set(excluded)]
    names = names_read(train)
    return [label for label in labels if str(label) in names]


def columns_without_blanks(
    labels: Iterable[Any], train: Dataset, excluded: Iterable[str | None]
) -> list[Any]:
    """Return the columns that are read and need a value in every row.

    Args:
        labels: The labels of the columns of the table.
        train: The training rows.
        excluded: Names of columns that are no inputs.
    """
    labels, excluded = list(labels), list(excluded)
    optional = {name for role, name in train.names_of_roles.items() if not ROLES[role].predicts}
    if train.missing == "keep":
        names = train.feature_names or tuple(map(str, labels))
        optional |= {*names, *(source_of(name) or "" for name in names)}
    left_out = optional | {name for name in excluded if name is not None}
    return [one for one in columns_read(labels, train, excluded) if str(one) not in left_out]
