"""Errors that name rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..errors import DataError

__all__ = ["WrongRows", "entry_in", "numbered"]

Words = str | Callable[[list[int]], str]


class WrongRows(DataError):
    """Rows of a table cannot be used.

    Args:
        expected: What the library expected.
        got: What it was given: words, or (the numbers of the rows) -> words.
        rows: The numbers of the rows, counted from 0.
        do: What the user can do about it, as ``got``.
    """

    def __init__(self, expected: str, got: Words, rows: Sequence[int], do: Words) -> None:
        self.words, self.rows = (got, do), list(rows)
        said = [part if isinstance(part, str) else part(self.rows) for part in self.words]
        super().__init__(expected, *said)

    def renumbered(self, numbers: Sequence[int]) -> WrongRows:
        """Return the error with other numbers of the rows: that of row i is ``numbers[i]``."""
        got, do = self.words
        return WrongRows(self.expected, got, [int(numbers[row]) for row in self.rows], do)


def entry_in(entry: str, also: str = "") -> Callable[[list[int]], str]:
    """Return (rows) -> the words for an entry in the first of them: "'?' in row 3, column 1".

    Args:
        entry: The entry in words.
        also: What follows the row.
    """
    return lambda rows: f"{entry} in row {rows[0]}{also}"


@contextmanager
def numbered(numbers: Sequence[int] | None) -> Iterator[None]:
    """Let errors of the block name the rows of the table that some rows were taken from.

    Args:
        numbers: The number there of each row; None: they have their own numbers.
    """
    try:
        yield
    except WrongRows as error:
        if numbers is None:
            raise
        raise error.renumbered(numbers) from None
