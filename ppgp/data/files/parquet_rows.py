"""Rows of Parquet files as NumPy arrays, checked as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...errors import DataError
from .parquet_files import Piece, footer, unreadable

__all__ = [
    "Columns",
    "ParquetRows",
    "Place",
    "an_empty_cell",
    "check_finite",
    "columns_at",
    "record_batches",
    "regrouped",
]

AT_ONCE = 65_536  # rows that are decoded at once

Part = TypeVar("Part")
Columns = list[Any]
"""One array [k] for each column; labels without codes are one of Arrow."""


@dataclass(frozen=True)
class Place:
    """Where some rows that follow one another are from.

    Attributes:
        piece: The piece of a file.
        start: The first of the rows, counted in the row group of the piece.
    """

    piece: Piece
    start: int

    def row_of_file(self, row: int) -> int:
        """Return the number in the file, from 0, of one of the rows."""
        metadata = footer(self.piece.file)
        before = sum(metadata.row_group(i).num_rows for i in range(self.piece.group))
        return before + self.start + row


@dataclass(frozen=True, eq=False)
class ParquetRows:
    """The columns that are read of Parquet files: inputs, the target and the weights, in order.

    Attributes:
        inputs: The names of the inputs.
        target: The name of the target.
        weights: The name of the column of weights; None: there is none.
        classes: The labels that codes stand for, if the target holds labels; None: numbers. An
            empty tuple: labels that are not known yet, which are left as they are in Arrow.
    """

    inputs: tuple[str, ...]
    target: str
    weights: str | None
    classes: tuple[Any, ...] | None

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [*self.inputs, self.target, *([self.weights] if self.weights else [])]

    def read(self, pieces: Sequence[Piece], skip: int = 0) -> Iterator[Columns]:
        """Yield the rows of pieces, one after the other, as chunks of columns.

        Only the columns that are needed are read, one row group at a time.

        Args:
            pieces: Where the rows are.
            skip: How many of the first rows to leave out.

        Raises:
            DataError: If a value is missing or not finite, a weight is not above 0, or a file
                cannot be read; the message names column, file, row group and row.
        """
        for at, part in record_batches(pieces, self.names, skip):
            yield [self._column(part.column(name), name, at) for name in self.names]

    def _column(self, column: Any, name: str, at: Place) -> Any:
        """Return one column of a chunk as numbers [k], or as labels that have no codes yet."""
        if column.null_count:
            raise an_empty_cell(column, name, at)
        if name == self.target and self.classes is not None:
            return self._codes(column, name, at)
        numbers = column.to_numpy(zero_copy_only=False)
        if numbers.dtype.kind not in "fiub":
            numbers = numbers.astype(float)  # decimals
        check_finite(numbers, name, at)
        if name == self.weights and not bool((numbers > 0).all()):
            raise wrong_values("weights above 0", "another one", name, at, numbers <= 0)
        return numbers

    def _codes(self, column: Any, name: str, at: Place) -> Any:
        """Return the codes of labels, [k]; the labels themselves while they have no codes."""
        import pyarrow
        from pyarrow import compute

        if pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if not self.classes:
            return column
        known = pyarrow.array(self.classes, column.type)
        codes = compute.call_function(
            "index_in", [column], compute.SetLookupOptions(value_set=known)
        )
        if codes.null_count:
            other = codes.is_null().to_numpy(zero_copy_only=False)
            raise wrong_values("the labels of the other rows", "another label", name, at, other)
        return codes.to_numpy(zero_copy_only=False)


def record_batches(
    pieces: Sequence[Piece], names: Sequence[str], skip: int = 0
) -> Iterator[tuple[Place, Any]]:
    """Yield the rows of pieces as record batches of Arrow, each with the place it is from.

    Args:
        pieces: Where the rows are.
        names: The columns to read.
        skip: How many of the first rows to leave out.

    Raises:
        DataError: If a file cannot be read.
    """
    import pyarrow
    from pyarrow import parquet

    footers: dict[Path, Any] = {}
    for piece in pieces:
        if skip >= piece.n:
            skip -= piece.n
            continue
        try:
            if piece.file not in footers:
                footers[piece.file] = footer(piece.file)
            with parquet.ParquetFile(piece.file, metadata=footers[piece.file]) as file:
                yield from _of_piece(file, piece, names, skip)
        except (OSError, pyarrow.ArrowException) as error:
            raise unreadable(piece.file, error) from None
        skip = 0


def _of_piece(
    file: Any, piece: Piece, names: Sequence[str], skip: int
) -> Iterator[tuple[Place, Any]]:
    """Yield the rows of one piece from an open file, without the first ``skip``."""
    at, start = 0, piece.start + skip
    chunks = file.iter_batches(
        AT_ONCE, row_groups=[piece.group], columns=list(names), use_threads=False
    )
    for chunk in chunks:
        low, high = max(start - at, 0), min(piece.stop - at, chunk.num_rows)
        if low < high:
            yield Place(piece, at + low), chunk.slice(low, high - low)
        at += chunk.num_rows
        if at >= piece.stop:
            return


def columns_at(columns: Columns, rows: slice) -> Columns:
    """Return some rows of a chunk of columns."""
    return [column[rows] for column in columns]


def regrouped(
    parts: Iterable[Part],
    rows: int,
    length: Callable[[Part], int],
    at: Callable[[Part, slice], Part],
) -> Iterator[list[Part]]:
    """Yield lists of parts that have ``rows`` rows together; the last has the rows that are left.

    Args:
        parts: Rows that follow one another, in parts of any length.
        rows: The rows of each list.
        length: ``length(part)`` is the number of its rows.
        at: ``at(part, rows)`` are some of its rows.
    """
    held: list[Part] = []
    count = 0
    for part in parts:
        start, n = 0, length(part)
        while start < n:
            stop = min(start + rows - count, n)
            held.append(at(part, slice(start, stop)))
            count, start = count + stop - start, stop
            if count == rows:
                yield held
                held, count = [], 0
    if held:
        yield held


def an_empty_cell(column: Any, name: str, at: Place) -> DataError:
    """Return the error for a column of Arrow with an empty cell."""
    empty = column.is_null().to_numpy(zero_copy_only=False)
    return wrong_values("a value in every row", "an empty cell", name, at, empty)


def check_finite(numbers: np.ndarray, name: str, at: Place) -> None:
    """Raise DataError unless all numbers [k] of a column are finite."""
    if numbers.dtype.kind != "f":
        return
    finite = np.isfinite(numbers)
    if not finite.all():
        raise wrong_values("finite numbers", "NaN or infinity", name, at, ~finite)


def wrong_values(expected: str, got: str, name: str, at: Place, wrong: np.ndarray) -> DataError:
    """Return the error for values that cannot be used.

    Args:
        expected: What a column holds.
        got: What it held.
        name: The name of the column.
        at: Where the rows are from.
        wrong: [k] bool, which of the rows cannot be used.
    """
    row = at.row_of_file(int(np.flatnonzero(wrong)[0]))
    where = f"{got} in column {name} of {at.piece.file.name}, row group {at.piece.group}"
    do = "correct the rows, or drop them from the file"
    return DataError(expected, f"{where}, row {row} of the file", do)
