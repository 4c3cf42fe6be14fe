"""A .csv or .tsv file as a DataFrame.

Every row must have as many fields as the header, and no name may occur twice.
"""

from __future__ import annotations

import codecs
import io
from typing import Any

import numpy as np

from ...errors import DataError, counted
from ..columns import refuse_twice
from .delimited_records import plain_records, quoted_records

#: what programs separate columns with
SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def read_delimited(content: bytes, separator: str, name: str) -> Any:
    """Return the table of a file whose first line names the columns.

    Args:
        content: The bytes of the file.
        separator: The character that separates its columns.
        name: What messages call the file.

    Raises:
        DataError: If a row has another number of fields than the header, a name occurs twice, or
            the file is not UTF-8 text.
    """
    import pandas as pd

    content = _text(content, name)
    records = plain_records
    quoted = b'"' in content
    if quoted:
        records = quoted_records
    header, header_line, fields, lines = records(content, separator, name)
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
    frame = pd.read_csv(io.BytesIO(content), sep=separator, index_col=False, low_memory=False)
    if len(frame) != len(fields):
        raise DataError(f"{len(fields)} rows in {name}", f"{len(frame)}", "check its quotes")
    return frame


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
