"""A table of the README between two marks: printed, and with ``--write`` replaced."""

from __future__ import annotations

import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def split(text: str, name: str) -> tuple[str, str, str]:
    """Return the text before, between and after the marks of a table, marks left outside."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    start = text.index(begin) + len(begin)
    stop = text.index(end)
    return text[:start], text[start:stop], text[stop:]


def in_readme(name: str) -> str:
    """Return the table that the README has."""
    return split(README.read_text(), name)[1]


def show(name: str, table: str) -> bool:
    """Print a table, or write it into the README; return whether it was written."""
    if "--write" not in sys.argv:
        print(table, end="")
        return False
    before, _, after = split(README.read_text(), name)
    README.write_text(before + table + after)
    return True
