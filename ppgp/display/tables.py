"""Small HTML tables, in which notebooks show the objects of this library.

The text is escaped, and there are no scripts, styles or colours: the page decides on these, so that
light and dark pages both work.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["facts", "frame", "items", "more", "page", "sentence", "table"]

LONGEST = 200  # characters of one cell
MOST_COLUMNS = 12  # of a table


def page(title: str, about: str, *parts: str) -> str:
    """Return the HTML of one object.

    Args:
        title: What it is.
        about: A few words on it, after the title; "": none.
        *parts: HTML of what follows, such as tables.
    """
    heading = f"<strong>{escaped(title)}</strong>"
    if about:
        heading += f": {escaped(about)}"
    return f"<div><p>{heading}</p>{''.join(parts)}</div>"


def sentence(text: str) -> str:
    """Return a paragraph; "" for an empty text."""
    return f"<p>{escaped(text)}</p>" if text else ""


def items(title: str, texts: Iterable[str]) -> str:
    """Return a list of sentences under a title; "" if there are none."""
    entries = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return f"<p>{escaped(title)}</p><ul>{entries}</ul>" if entries else ""


def facts(named: Mapping[str, Any]) -> str:
    """Return a table with one line per name and value, without those that are None or ""."""
    lines = [(name, value) for name, value in named.items() if value is not None and value != ""]
    return table((), lines)


def table(columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table whose first column holds the names of the rows.

    Args:
        columns: The headings, that of the names of the rows included; empty: no line of headings.
        rows: The rows, each with its name first.
    """
    head = ""
    if columns:
        names = "".join(f"<th>{escaped(name)}</th>" for name in columns)
        head = f"<thead><tr>{names}</tr></thead>"
    body = "".join(_line(row) for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def frame(data: pd.DataFrame, most: int) -> str:
    """Return the first rows and columns of a data frame, and a sentence on how many are left out.

    Args:
        data: The data frame.
        most: The most rows.
    """
    columns = list(data.columns[:MOST_COLUMNS])
    shown = data[columns].head(most)
    index = [" ".join(map(str, each)) if isinstance(each, tuple) else each for each in shown.index]
    name = " ".join(str(each) for each in data.index.names if each is not None)
    rows = ([label, *row] for label, row in zip(index, shown.to_numpy(object), strict=True))
    lines = table([name, *columns], rows)
    left = more(len(data) - most, "row") + more(len(data.columns) - MOST_COLUMNS, "column")
    return lines + left


def more(count: int, noun: str) -> str:
    """Return the sentence "and 3 rows more"; "" for none."""
    if count <= 0:
        return ""
    plural = noun if count == 1 else f"{noun}s"
    return f"<p>and {count:,} {plural} more</p>"


def escaped(value: Any) -> str:
    """Return a cell: numbers with four digits, anything else as text of a limited length."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} …"
    return html.escape(text)


def _line(row: Sequence[Any]) -> str:
    name, *cells = row
    columns = "".join(f"<td>{escaped(cell)}</td>" for cell in cells)
    return f"<tr><th>{escaped(name)}</th>{columns}</tr>"
