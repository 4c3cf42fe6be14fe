"""A .csv or .tsv file as a DataFrame: every row has as many fields as the header, and no name comes twice."""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, counted
from .columns import refuse_twice

SIGNS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
}  # that separate columns in one program or another
SPACES = np.frombuffer(b" \t", np.uint8)


class Records(NamedTuple):
    """What a file holds beside blank lines.

    Args:
        header: the names in its first record.
        header_line: the line of the file on which that begins, counted from 1.
        fields: of each further record, how many fields it has.
        lines: of each further record, the line of the file on which it begins, counted from 1.
    """

    header: list[str]
    header_line: int
    fields: np.ndarray
    lines: np.ndarray


def read_delimited(path: Path, separator: str) -> Any:
    """The table of a file whose first line names the columns.

    Raises:
        DataError: for rows of another number of fields than the header, names that come twice, what is no UTF-8 text.
    """
    import pandas as pd

    content = _text(path)
    header, header_line, fields, lines = (_quoted if b'"' in content else _plain)(
        content, separator, path.name
    )
    _check_header(header, separator, path.name)
    refuse_twice(name for name in header if name.strip())
    wrong = np.flatnonzero(fields != len(header))
    if len(wrong):
        row = int(wrong[0])
        more = f"; {len(wrong)} such rows" if len(wrong) > 1 else ""
        raise DataError(
            f"{counted(len(header), 'field')} in every row of {path.name}, as in its header",
            f"{fields[row]} in row {row} (line {lines[row]}){more}",
            "mend the row; a separator at its end counts, and so does a decimal comma",
        )
    gaps = np.flatnonzero(np.diff(lines, prepend=header_line) > 1)
    if len(header) == 1 and len(gaps) and b'"' not in content:
        after = header_line if gaps[0] == 0 else lines[gaps[0] - 1]
        got = f"a blank line {after + 1}"
        raise DataError(f"a value in every row of {path.name}", got, "fill it, or drop the line")
    frame = pd.read_csv(io.BytesIO(content), sep=separator, index_col=False, low_memory=False)
    if len(frame) != len(fields):
        raise DataError(f"{len(fields)} rows in {path.name}", f"{len(frame)}", "check its quotes")
    return frame


def _check_header(header: list[str], separator: str, name: str) -> None:
    """Refuse the header of a file with other separators, and one that ends in a separator."""
    others = [
        sign for sign in SIGNS if sign != separator and len(header) == 1 and sign in header[0]
    ]
    if others:
        wanted = SIGNS[separator]
        raise DataError(
            f"columns separated by {wanted} in {name}", _shown(others[0]), f"save it with {wanted}"
        )
    if len(header) > 1 and not header[-1].strip():
        do = "drop that separator, and the one at the end of each row, or name the column"
        raise DataError(
            f"a name for every column of {name}",
            "none for the last: the header ends in a separator",
            do,
        )


def _shown(sign: str) -> str:
    return "a tab" if sign == "\t" else repr(sign)


def _text(path: Path) -> bytes:
    """The bytes of a file of UTF-8 text, without its mark at the beginning."""
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    if not content.strip():
        raise DataError("a table with a header", f"the empty file {path.name}", "check the file")
    bad = content.find(b"\0")
    if bad < 0 and not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError as error:
            bad = error.start
    if bad >= 0:
        line = content.count(b"\n", 0, bad) + 1
        raise DataError(
            f"UTF-8 text in {path.name}", f"other bytes in line {line}", "save it as UTF-8 text"
        )
    return content


def _plain(content: bytes, separator: str, name: str) -> Records:
    """Of a file without quotes: counted in one go, since it may have many rows."""
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
    return Records(first.split(separator), int(kept[0]) + 1, fields[kept[1:]], kept[1:] + 1)


def _quoted(content: bytes, separator: str, name: str) -> Records:
    """Of a file with quotes, within which separators and line ends count for nothing."""
    reader = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator)
    header: list[str] = []
    header_line = 1
    fields: list[int] = []
    lines: list[int] = []
    begins = 1
    try:
        for record in reader:
            blank = len(record) < 2 and not "".join(record).strip(" \t")
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
    return Records(header, header_line, np.array(fields, dtype=int), np.array(lines, dtype=int))
