"""The records of a .csv or .tsv file.

Every row must have as many fields as the header, and no name may occur twice. The records of the
file say how many fields each has, and on which line it begins.
"""

from __future__ import annotations

import codecs
import csv
import io
from typing import NamedTuple

import numpy as np

from ..errors import DataError, counted
from .names import refuse_twice

#: what programs separate columns with
SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs"}
SPACES = np.frombuffer(b" \t", np.uint8)


def records_of(content: bytes, separator: str, name: str) -> Records:
    """Return the records of a file whose first line names the columns.

    Args:
        content: The bytes of the file.
        separator: The character that separates its columns.
        name: What messages call the file.

    Raises:
        DataError: If a row has another number of fields than the header, a name occurs twice, or
            the file is not UTF-8 text.
    """
    content = _text(content, name)
    find = _plain_records
    quoted = b'"' in content
    if quoted:
        find = _quoted_records
    found = find(content, separator, name)
    header, header_line, fields, lines = found.header, found.header_line, found.fields, found.lines
    _check_header(header, separator, name)
    refuse_twice(name for name in header if name.strip())
    wrong = np.flatnonzero(fields != len(header))
    if len(wrong):
        row = int(wrong[0])
        got = f"{fields[row]} in row {row} (line {lines[row]})"
        if len(wrong) > 1:
            got += f"; {len(wrong)} such rows"
        raise DataError(
            f"{counted(len(header), 'field')} in every row of {name}, as in its header",
            got,
            "correct the row; a separator at its end counts, and so does a decimal comma",
        )
    gaps = np.flatnonzero(np.diff(lines, prepend=header_line) > 1)
    if len(header) == 1 and len(gaps) and not quoted:
        after = header_line if gaps[0] == 0 else lines[gaps[0] - 1]
        got = f"a blank line {after + 1}"
        raise DataError(f"a value in every row of {name}", got, "fill it, or drop the line")
    return found


def _check_header(header: list[str], separator: str, name: str) -> None:
    """Raise DataError for a header with other separators, and for one that ends in a separator."""
    if len(header) == 1:
        others = [sign for sign in SIGNS if sign != separator and sign in header[0]]
        if others:
            wanted = SIGNS.get(separator, repr(separator))
            got = "a tab" if others[0] == "\t" else repr(others[0])
            do = f"pass sep={others[0]!r}, or save it with {wanted}"
            raise DataError(f"columns separated by {wanted} in {name}", got, do)
    elif header and not header[-1].strip():
        raise DataError(
            f"a name for every column of {name}",
            "none for the last: the header ends in a separator",
            "drop that separator, and the one at the end of each row, or name the column",
        )


def _text(content: bytes, name: str) -> bytes:
    """Return the bytes of a file of UTF-8 text, without its byte-order mark."""
    content = content.removeprefix(codecs.BOM_UTF8)
    if not content.strip():
        raise DataError("a table with a header", f"{name}, which is empty", "check the file")
    bad = content.find(b"\0")
    if bad < 0 and not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError as error:
            bad = error.start
    if bad >= 0:
        line = content.count(b"\n", 0, bad) + 1
        raise DataError(
            f"UTF-8 text in {name}", f"other bytes in line {line}", "save it as UTF-8 text"
        )
    return content


class Records(NamedTuple):
    """The records of a file, without blank lines.

    Attributes:
        header: The names in the first record.
        header_line: The line of the file on which the header begins, counted from 1.
        fields: The number of fields of each further record.
        lines: The line of the file on which each further record begins, counted from 1.
        content: The text of the file, UTF-8 without a byte-order mark.
    """

    header: list[str]
    header_line: int
    fields: np.ndarray
    lines: np.ndarray
    content: bytes


def _plain_records(content: bytes, separator: str, name: str) -> Records:
    """Return the records of a file without quotes, by vectorised operations."""
    body = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removesuffix(b"\n") + b"\n"
    codes = np.frombuffer(body, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    fields = 1 + np.diff(np.searchsorted(np.flatnonzero(codes == ord(separator)), ends), prepend=0)
    blank = starts == ends
    for line in np.flatnonzero((fields == 1) & np.isin(codes[starts], SPACES)):
        blank[line] = not body[starts[line] : ends[line]].strip(b" \t")
    kept = np.flatnonzero(~blank)
    first = body[starts[kept[0]] : ends[kept[0]]].decode()
    return Records(
        first.split(separator), int(kept[0]) + 1, fields[kept[1:]], kept[1:] + 1, content
    )


def is_blank(record: list[str]) -> bool:
    """Return whether a record is a blank line."""
    return len(record) < 2 and not "".join(record).strip(" \t")


def _quoted_records(content: bytes, separator: str, name: str) -> Records:
    """Return the records of a file with quotes, in which separators and line ends may be quoted."""
    reader = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator)
    header: list[str] = []
    header_line = 1
    fields: list[int] = []
    lines: list[int] = []
    begins = 1
    try:
        for record in reader:
            blank = is_blank(record)
            if header and not blank:
                fields.append(len(record))
                lines.append(begins)
            elif not blank:
                header, header_line = record, begins
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"a readable {name}", f"{error} in line {begins}", "check the file"
        ) from None
    numbers = np.array(fields, dtype=int), np.array(lines, dtype=int)
    return Records(header, header_line, *numbers, content)
