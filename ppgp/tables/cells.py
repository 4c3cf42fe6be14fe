"""The cells of a table: those without a value, and text where numbers are needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, counted, listed
from .entries import (
    CURRENCY,
    PERCENT,
    UNIT,
    Misspelt,
    first_odd,
    is_missing,
    misspelt,
    reads_as_number,
    spelling,
)
from .wrong_rows import WrongRows, entry_in

__all__ = ["fill_or_keep", "in_one", "no_numbers", "no_values", "places_of", "refuse_quantity"]

SHOWN = 4  # columns whose spelling of numbers a message names
SHOWN_BLANK = 3  # columns with empty cells that a message names
LABELS_TOO = (CURRENCY, PERCENT, UNIT)  # of numbers that are labels where they are repeated
MOST_ODD = 0.1  # the share of entries that are text in a column of numbers


def places_of(blank: Mapping[Any, Sequence[int]]) -> str:
    """Return where values are missing, in words.

    Args:
        blank: {column: the rows without a value}, without columns that have all.
    """
    places = [f"column {name}, {listed(list(rows), 'row')}" for name, rows in blank.items()]
    where = "; ".join(places[:SHOWN_BLANK])
    if len(places) > SHOWN_BLANK:
        where += f"; and {counted(len(places) - SHOWN_BLANK, 'other column')}"
    return where


def no_values(where: str, also: str) -> DataError:
    """Return the error for cells without a value.

    Args:
        where: The words of ``places_of``.
        also: What the user can do other than drop the rows.
    """
    do = f"drop those rows with missing='drop', {also}"
    return DataError("a value in every cell", f"none in {where}", do)


def fill_or_keep(with_roles: bool) -> str:
    """Return what the user can do other than drop rows with an empty cell.

    Args:
        with_roles: Whether a cell of the target, or of another column that is no input, is empty.
    """
    if with_roles:
        return "or fill them"
    return "fill them, or pass missing='keep' for models.Boosted, whose Trees take NaN"


def in_one(faults: Sequence[DataError]) -> DataError:
    """Return one error that names all faults of a table."""
    if len(faults) == 1:
        return faults[0]
    wanted = "; ".join(fault.expected for fault in faults)
    got = "; ".join(fault.got for fault in faults)
    return DataError(wanted, got, "; ".join(fault.do for fault in faults))


class _Odd(NamedTuple):
    """What is odd about a column that holds no numbers.

    Attributes:
        row: The row of an entry that is no number.
        entry: That entry.
        spelt: How numbers are spelt, if all odd entries are numbers.
        word: The entry, if it is one of few words among numbers, as of missing values; else "".
    """

    row: int
    entry: Any
    spelt: Misspelt | None
    word: str

    @classmethod
    def of(cls, entries: list[Any]) -> _Odd:
        """Return what is odd about the entries of a column."""
        spelt = misspelt(entries)
        if spelt is not None:
            return cls(spelt.position, entries[spelt.position], spelt, "")
        if all(map(reads_as_number, entries)):
            return cls(0, entries[0], None, "")
        row = first_odd(entries)
        others = [entry for entry in entries if not reads_as_number(entry)]
        word = not re.search(r"\d", str(entries[row]))
        few = word and len(set(map(str, others))) == 1 and 2 * len(others) < len(entries)
        return cls(row, entries[row], None, f"{entries[row]!r:.60}" if few else "")


def no_numbers(text: Mapping[str, list[Any]]) -> WrongRows:
    """Return the error for input columns that hold no numbers.

    Args:
        text: {name: all entries}, one of which at least is no number.
    """
    odd = {name: _Odd.of(entries) for name, entries in text.items()}
    wanted, names = "numbers in every input column", listed(list(odd), "column")
    spelt = {name: one for name, one in odd.items() if one.spelt is not None}
    others = {name: one for name, one in odd.items() if one.spelt is None}
    several = len(odd) > 1
    shown = [*list(spelt.items())[:SHOWN], *list(others.items())[:1]]

    def words(rows: list[int]) -> str:
        sentences = []
        for row, (name, one) in zip(rows, shown, strict=True):
            where = f"in row {row}" + (f" of column {name}" if several else "")
            if one.spelt is not None:
                sentences.append(f"{one.entry!r:.60} {where} {one.spelt.says}: {one.spelt.do}")
            else:
                sentences.append(_text_advice(list(others), one, where, several))
        return "; ".join(sentences)

    kind = "text" if not others else "text or dates"
    return WrongRows(wanted, f"{kind} in {names}", [one.row for _, one in shown], words)


_STARTS_AS_DATE = re.compile(r"\d{4}-\d{2}\b")


def _text_advice(names: list[str], odd: _Odd, where: str, several: bool) -> str:
    """Return what to do about columns of text, of which ``odd`` is in the first."""
    entry = f"{odd.entry!r:.60} {where}"
    also = ""
    if odd.word:
        also = f" (leave the cell empty if {odd.word} says that a value is missing)"
    columns = listed(names, "column") if several else "the column"
    series = f", or time={names[0]!r} for a series" if _STARTS_AS_DATE.match(str(odd.entry)) else ""
    return (
        f"drop {columns}, make one column of 0 and 1 per category (Dataset.from_frame does, "
        "with one_hot=True), make codes for models.Boosted (with categories='codes'), make "
        f"years of dates such as 2024-05-31 (with dates='years'{series}), or correct {entry}{also}"
    )


def refuse_quantity(array: np.ndarray) -> None:
    """Refuse a column of numbers that a few cells of text, or their spelling, turn into labels.

    Raises:
        DataError: If at most a tenth of the entries are no numbers (less than half, if one of the
            numbers is no whole number, as codes are); the message names the first.
    """
    if array.dtype.kind == "b":
        return
    entries = array.ravel().tolist()
    present = [i for i, entry in enumerate(entries) if not is_missing(entry)]
    text = [i for i in present if not _spells_number(entries[i])]
    found = misspelt([entries[i] for i in present])
    spelt = [i for i in text if spelling(entries[i]) is not None]
    if found is not None and not spelt and text:
        spelt = text  # numbers with one unit
    odd = [i for i in text if i not in set(spelt)] or spelt
    numbers = set(present).difference(text)
    fractions = bool(spelt) or not all(float(entries[i]).is_integer() for i in numbers)
    most = len(present) / 2 if fractions else MOST_ODD * len(present)
    if not odd or (len(odd) > most and odd is not spelt):
        return
    first, got, do = odd[0], f"{entries[odd[0]]!r:.60}", "correct it"
    if odd is spelt and found is not None:
        different = len({entries[i] for i in present})
        if found.kind in LABELS_TOO and 2 * different <= len(present):
            return  # doses such as "5 mg" are labels too
        first, do = present[found.position], found.do
        got = found.in_words([entries[i] for i in present])
    raise WrongRows(
        "numbers in y",
        entry_in(got),
        [first // max(1, array[:1].size)],
        f"{do}; or, if y holds labels, pass labels as pandas' ordered categories",
    )


def _spells_number(entry: Any) -> bool:
    """Return whether a label is a number or text that spells one, which a boolean is not."""
    return reads_as_number(entry) and not isinstance(entry, bool)
