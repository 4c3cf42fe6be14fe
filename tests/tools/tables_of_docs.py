"""A table of the documentation between two marks: printed, and with ``--write`` replaced."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CELLS = re.compile(r"(?<!\\)\|")  # the bars between cells
DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "members": "contents",
    "capabilities": "contents",
    "advice": "contents",
    "threads": "speed",
    "dtypes": "dtypes",
    "programs": "programs",
    "beside_pyro": "programs",
}


def page_of(name: str) -> Path:
    """Return the page that has the table."""
    return DOCS / f"{PAGES[name]}.md"


def split(text: str, name: str) -> tuple[str, str, str]:
    """Return the text before, between and after the marks of a table, marks left outside."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    start = text.index(begin) + len(begin)
    stop = text.index(end)
    return text[:start], text[start:stop], text[stop:]


def in_docs(name: str) -> str:
    """Return the table that its page has."""
    return split(page_of(name).read_text(), name)[1]


def rows_of(text: str) -> dict[str, dict[str, str]]:
    """Return ``{program: {column: cell}}`` of a table."""
    header, _, *lines = [
        [cell.strip().replace("\\|", "|") for cell in CELLS.split(line)[1:-1]]
        for line in text.split("\n")[:-1]
    ]
    return {line[0].replace(" ", "_"): dict(zip(header, line, strict=True)) for line in lines}


def show(name: str, table: str) -> bool:
    """Print a table, or write it into its page; return whether it was written."""
    if "--write" not in sys.argv:
        print(table, end="")
        return False
    page = page_of(name)
    before, _, after = split(page.read_text(), name)
    page.write_text(before + table + after)
    return True
