"""Entries of arrays: which are missing or not real numbers, and in which row."""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Sequence
from numbers import Number
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..errors import DataError, listed
from .wrong_rows import WrongRows, entry_in

LARGEST = np.finfo(float).max
BOOLEANS = ("true", "false")
DATES_ADVICE = (
    "count days or seconds from a start date, or make years of a column of a table by "
    "Dataset.from_frame(table, target, dates='years')"
)
THOUSANDS, DECIMAL, EITHER = "thousands", "decimal", "either"
EUROPEAN, GROUPS = "european", "groups"
CURRENCY, PERCENT, UNIT, MINUS, PARENTHESES = "currency", "percent", "unit", "minus", "parentheses"
#: spelling of a number -> what is odd about an entry, and what to do about it
SPELLINGS = {
    DECIMAL: (
        "has a decimal comma",
        "write a point in place of each decimal comma (pandas.read_csv has decimal=',')",
    ),
    THOUSANDS: (
        "has commas that separate thousands",
        "leave them out (pandas.read_csv has thousands=',')",
    ),
    EITHER: (
        "has a comma that separates thousands, or a decimal comma",
        "leave it out if it separates thousands (pandas.read_csv has thousands=','); write a point "
        "in its place if it is a decimal comma (decimal=',')",
    ),
    EUROPEAN: (
        "has points that separate thousands",
        "leave them out, and write a point in place of a decimal comma (pandas.read_csv has "
        "thousands='.', decimal=',')",
    ),
    GROUPS: (
        "has separators of thousands",
        "leave them out (pandas.read_csv has thousands= for one of them)",
    ),
    CURRENCY: ("has a sign of a currency", "leave it out of the cells, and name it in the header"),
    PERCENT: ("has a sign of percent", "leave it out of the cells, and name it in the header"),
    UNIT: ("has a unit", "leave it out of the cells, and name it in the header"),
    MINUS: ("has a minus sign that is no hyphen", "write '-'"),
    PARENTHESES: ("is a negative number in parentheses", "write '-' in their place"),
}
LONGEST = 60  # characters of a text that may spell a number
COMMAS = (DECIMAL, THOUSANDS, EITHER)
SPACES = " _\u00a0\u202f\u2009'\u2019"  # that separate thousands, with _ and apostrophes
_DIGITS = {
    EITHER: re.compile(r"[1-9]\d{0,2},\d{3}"),
    THOUSANDS: re.compile(r"\d{1,3}(,\d{3}){2,}|\d{1,3}(,\d{3})+\.\d*"),
    DECIMAL: re.compile(r"\d*,\d+(e[+-]?\d+)?|\d+,", re.IGNORECASE),
    EUROPEAN: re.compile(r"\d{1,3}(\.\d{3})+,\d*|\d{1,3}(\.\d{3}){2,}"),
    GROUPS: re.compile(rf"\d{{1,3}}([{SPACES}]\d{{3}})+([.,]\d*)?"),
}
_DIGIT = re.compile(r"\d")
_WITH_UNIT = re.compile(r"(?P<number>[+-]?[\d.,]*\d)\s*(?P<unit>[^\W\d_][^\s\d]*\d?)")
ENCODE = (
    "encode categories as numbers (one column per category), drop the column, or correct the row"
)


def real_numbers(array: np.ndarray, what: str) -> np.ndarray:
    """Return the array with text and objects read as numbers.

    None, NA and NaT in an array of objects become NaN.

    Args:
        array: The array.
        what: What it is called in messages.

    Raises:
        DataError: If an entry is not a real number; the message names the first one and its row.
    """
    kind = array.dtype.kind
    if kind in "mM":
        raise DataError(f"numbers in {what}", "dates", DATES_ADVICE)
    if kind == "c":
        refuse_complex(what)
    if kind in "fiub":
        return array
    if kind not in "OUS":
        raise DataError(
            f"numbers in {what}", f"entries of type {array.dtype}", "pass one column per field"
        )
    entries = array.ravel().tolist()
    flat = [_number(entries, position, array.shape, what) for position in range(len(entries))]
    return np.array(flat, dtype=float).reshape(array.shape)


def _number(entries: list[Any], position: int, shape: Sequence[int], what: str) -> float:
    """Return the entry at a position as a float, or raise DataError."""
    entry = entries[position]
    if is_missing(entry):
        return float("nan")
    if isinstance(entry, complex):
        refuse_complex(what)
    if isinstance(entry, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64):
        do = "count days or seconds from a start date"
        raise _refused(f"numbers in {what}", "a date", position, shape, do)
    try:
        return float(entry)
    except OverflowError:
        wanted = f"numbers up to {LARGEST:.2g} in {what}"
        raise _refused(wanted, "a larger one", position, shape, "use another unit") from None
    except (TypeError, ValueError):
        found = misspelt(entries)
        odd, got, do = first_odd(entries), f"{entries[first_odd(entries)]!r:.60}", ENCODE
        if found is not None:
            odd, got, do = found.position, found.in_words(entries), found.do
        raise _refused(f"numbers in {what}", got, odd, shape, do) from None


def _refused(wanted: str, got: str, position: int, shape: Sequence[int], do: str) -> WrongRows:
    """Return the error for the entry at a position of the flattened array."""
    row, *columns = place_of(position, shape)
    also = f", column {', '.join(map(str, columns))}" if columns else ""
    return WrongRows(wanted, entry_in(got, also), [row], do)


def first_odd(entries: Sequence[Any], odd: Sequence[int] | None = None) -> int:
    """Return the position of the first entry that is no number; of "True" only if all others are.

    A column of booleans with another word is read as text.

    Args:
        entries: Entries, one of which at least does not read as a number.
        odd: The positions of those that do not; None: they are searched.
    """
    if odd is None:
        odd = [i for i, entry in enumerate(entries) if not reads_as_number(entry)]
    return next((i for i in odd if str(entries[i]).casefold() not in BOOLEANS), odd[0])


def is_missing(entry: Any) -> bool:
    """Return whether an entry is None, NaN, or the NA or NaT of pandas."""
    if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(entry, float) and math.isnan(entry)


def reads_as_number(entry: Any) -> bool:
    """Return whether an entry is missing, a number, or text that spells a number."""
    if is_missing(entry) or isinstance(entry, Number):
        return True
    try:
        float(entry)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


class Misspelt(NamedTuple):
    """An entry that spells a number in a way that is not read.

    Attributes:
        position: Which entry it is.
        kind: A key of ``SPELLINGS``.
        says: What is odd about it, after the entry and its row.
        do: What to do about it.
    """

    position: int
    kind: str
    says: str
    do: str

    def in_words(self, entries: Sequence[Any]) -> str:
        """Return the entry, with what is odd about it unless what to do says so."""
        entry = f"{entries[self.position]!r:.60}"
        return entry if self.kind == DECIMAL else f"{entry}, which {self.says},"


def spelling(entry: Any) -> str | None:
    """Return how a text spells a number, a key of ``SPELLINGS``; None if it is no such text.

    A number that ``float`` reads, and one with a unit, are none of them: see ``misspelt``.
    """
    if not isinstance(entry, str) or len(entry) > LONGEST or not _DIGIT.search(entry):
        return None
    text = entry.strip()
    plain = text.replace("\u2212", "-").replace("\u2013", "-")
    if plain.startswith("(") and plain.endswith(")") and _is_spelt(plain[1:-1]):
        return PARENTHESES
    bare = "".join(c for c in plain if unicodedata.category(c) != "Sc").strip()
    if bare != plain and _is_spelt(bare):
        return CURRENCY
    if plain[-1:] in ("%", "\u2030") and _is_spelt(plain[:-1].rstrip()):
        return PERCENT
    digits = plain.removeprefix("+").removeprefix("-")
    for kind, pattern in _DIGITS.items():
        if pattern.fullmatch(digits):
            return kind
    if plain != text and reads_as_number(plain):
        return MINUS
    return None


def _is_spelt(text: str) -> bool:
    """Return whether a text is a number, spelt in any way."""
    return reads_as_number(text) or spelling(text) is not None


def misspelt(entries: Sequence[Any]) -> Misspelt | None:
    """Return the entry that shows best how the numbers of a column are spelt.

    One comma is read as that of its column: "1,486" may separate thousands, but not beside "1,5".
    A text with a unit is a number if all odd entries are numbers with this unit.

    Args:
        entries: The entries of a column, some of which are no numbers for ``float``.

    Returns:
        The entry, or None where the first odd entry is no number.
    """
    odd = [i for i, entry in enumerate(entries) if not reads_as_number(entry)]
    if not odd:  # texts that all spell numbers, which pandas keeps as text
        odd = [i for i, entry in enumerate(entries) if isinstance(entry, str)]
    texts = [i for i in odd if isinstance(entries[i], str)]
    known = {text: spelling(text) for text in {entries[i] for i in texts}}  # each text once
    kinds = {i: known[entries[i]] for i in texts if known[entries[i]] is not None}
    if not kinds or first_odd(entries, odd) not in kinds:
        return _with_one_unit(entries, odd)
    odd = list(kinds)
    found = dict.fromkeys(kinds.values())
    first = next(iter(found))
    commas = [kind for kind in found if kind in COMMAS]
    if first in COMMAS and THOUSANDS in commas and DECIMAL in commas:
        own = [next(i for i in odd if kinds[i] == kind) for kind in (THOUSANDS, DECIMAL)]
        says = f"has commas that separate thousands, and {entries[own[1]]!r:.40} a decimal comma"
        do = "write all numbers alike, 1486000 and 1.5"
        return Misspelt(own[0], THOUSANDS, says, do)
    if first == EITHER and len(commas) > 1:
        first = next(kind for kind in commas if kind != EITHER)
    position = next(i for i in odd if kinds[i] == first)
    return Misspelt(position, str(first), *SPELLINGS[str(first)])


def _with_one_unit(entries: Sequence[Any], odd: Sequence[int]) -> Misspelt | None:
    """Return the first odd entry if all of them are numbers with one unit, such as "12 kg"."""
    matches = [_WITH_UNIT.fullmatch(str(entries[i]).strip()) for i in odd]
    if not matches or len({match["unit"] if match else None for match in matches} - {None}) != 1:
        return None
    if not all(match and _is_spelt(match["number"]) for match in matches):
        return None
    return Misspelt(odd[0], UNIT, *SPELLINGS[UNIT])


def missing_rows(array: np.ndarray) -> list[int]:
    """Return the rows of an array of objects that have a missing entry."""
    width = max(1, array[:1].size)
    missing = [i for i, entry in enumerate(array.ravel().tolist()) if is_missing(entry)]
    return sorted({i // width for i in missing})


def place_of(position: int, shape: Sequence[int]) -> list[int]:
    """Return the place of an entry of the flattened array: its row, and its columns."""
    where = np.unravel_index(position, tuple(shape)) if shape else (0,)
    return [int(i) for i in where]


def refuse_complex(what: str) -> NoReturn:
    """Raise DataError for complex numbers."""
    raise DataError(
        f"real numbers in {what}", "complex ones", "pass real and imaginary parts as two columns"
    )


def refuse_masked(mask: np.ndarray, what: str) -> None:
    """Raise DataError if an entry is masked.

    Args:
        mask: True where an entry is masked.
        what: What the array is called in messages.
    """
    if not mask.any():
        return
    rows = [0]
    if mask.ndim:
        rows = np.flatnonzero(mask.reshape(len(mask), -1).any(1)).tolist()
    do = "drop those rows, or fill them with .filled()"
    raise DataError(f"no masked entries in {what}", f"some in {listed(rows, 'row')}", do)


def label_text(label: Any) -> str:
    """Return a label as text; whole floats as integers, so that 3.0 and 3 are one label."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label)
