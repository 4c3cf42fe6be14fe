"""Small HTML tables, in which notebooks show the objects of this library and its recipes.

The text is escaped, and there are no scripts, styles or colours: the page decides on these, so that
light and dark pages both work.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["facts", "frame", "items", "more", "page", "record_page", "sentence", "table"]

LONGEST = 200  # characters of one cell
MOST_COLUMNS = 12  # of a table
DEEPEST = 6  # parts inside parts of a recipe


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


def record_page(record: Any, leaf: type) -> str:
    """Return the HTML of a recipe: one line per part, prior and number.

    Lines have the names of the sites where they describe one. A kernel that wraps another, such as
    ``ARD(RBF())``, is one part, as the names of its sites are.

    Args:
        record: A frozen record.
        leaf: The class of the records inside that are shown by their repr: priors.
    """
    name, _ = _unwrapped(record, leaf)
    return page(name, "", table(("", "value"), _lines(record, "", leaf, 0)))


def _lines(record: Any, path: str, leaf: type, depth: int) -> Iterator[tuple[str, str]]:
    """Yield a line per field of a record and of the records inside it."""
    for name, value in _unwrapped(record, leaf)[1]:
        place = f"{path}.{name}" if path else name
        if name == "children":
            named = [(f"{path}.{i}" if path else str(i), each) for i, each in enumerate(value)]
        else:
            named = [(place, value)]
        for where, each in named:
            if depth < DEEPEST and _is_part(each, leaf):
                yield where, _unwrapped(each, leaf)[0]
                yield from _lines(each, where, leaf, depth + 1)
            else:
                yield where, _text(each)


def _is_part(value: Any, leaf: type) -> bool:
    """Return whether a value is a record of the library that is shown by its fields."""
    of_the_library = getattr(type(value), "takes_named_arguments", False)
    return of_the_library and is_dataclass(value) and not isinstance(value, leaf)


def _unwrapped(record: Any, leaf: type) -> tuple[str, list[tuple[str, Any]]]:
    """Return what a record is, and its fields; those of a kernel inside a kernel among them."""
    name = type(record).__name__
    own: list[tuple[str, Any]] = []
    if is_dataclass(record):
        own = [(f.name, getattr(record, f.name)) for f in fields(record) if f.repr]
    own = [(field, value) for field, value in own if (field, value) != ("standardised", False)]
    inner = dict(own).get("kernel")
    wraps = hasattr(record, "gram") and inner is not None and _is_part(inner, leaf)
    if not wraps:
        return name, own
    inside, others = _unwrapped(inner, leaf)
    return f"{name} of {inside}", [pair for pair in own if pair[0] != "kernel"] + others


def _text(value: Any) -> str:
    """Return a value in words: the shape of an array, the name of a function, or its repr."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and getattr(value, "ndim", 0):
        return f"{type(value).__name__} [{', '.join(map(str, value.shape))}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(each)}" for key, each in value.items())
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return repr(value)
