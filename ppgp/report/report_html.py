"""Parts of the page of the report: cells, tables that can be sorted, lists and figures, as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "Cell",
    "answer",
    "figure",
    "items",
    "listed_names",
    "note",
    "number",
    "section",
    "table",
    "text",
]

GOOD, FAIR, BAD, PLAIN = "good", "fair", "bad", "plain"
#: a sign beside the colour, for readers who cannot tell the colours apart
SIGNS = {GOOD: "\u2713 ", FAIR: "\u2248 ", BAD: "\u2717 ", PLAIN: ""}


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        content: What it shows, as HTML.
        key: What its column is sorted by; "" comes last.
        kind: Its class: "number" or "text".
    """

    content: str
    key: str
    kind: str = "text"


def number(
    value: float | None, shown: str | None = None, tone: str = PLAIN, below: str = ""
) -> Cell:
    """Return a cell with a number, which is empty where it is not known.

    Args:
        value: The number.
        shown: What the cell shows in place of four digits of it.
        tone: GOOD, FAIR, BAD or PLAIN.
        below: What is written below it.
    """
    if value is None or math.isnan(value):
        return Cell(html.escape(shown or ""), "", "number")
    # with "#", zeros at the end stay, so that the digits of a column line up
    content = html.escape(f"{value:#.4g}".rstrip(".") if shown is None else shown)
    if tone != PLAIN:
        content = f"<span class='{tone}'>{SIGNS[tone]}{content}</span>"
    if below:
        content += f"<small>{html.escape(below)}</small>"
    key = repr(float(value)).replace("inf", "Infinity")  # as JavaScript writes it
    return Cell(content, key, "number")


def text(words: str) -> Cell:
    """Return a cell with text."""
    return Cell(html.escape(words), words)


def answer(words: str, tone: str, reason: str = "", rank: int = 0) -> Cell:
    """Return a cell with an answer in colour and the reason below it.

    Args:
        words: The answer.
        tone: GOOD, FAIR, BAD or PLAIN.
        reason: A sentence; "": there is none.
        rank: What its column is sorted by.
    """
    content = f"<strong class='answer {tone}'>{SIGNS[tone]}{html.escape(words)}</strong>"
    if reason:
        words = reason.replace("+-", "\u00b1")
        content += f"<small>{html.escape(words)}</small>"
    return Cell(content, str(rank))


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]], kind: str = "") -> str:
    """Return a table whose headings sort it.

    On a narrow screen each row becomes a block, in which each cell has its heading beside it.

    Args:
        headings: The heading of each column.
        rows: The cells of each row; the first one names the row.
        kind: A further class of the table.
    """
    rows = list(rows)
    kinds = [cell.kind for cell in rows[0]] if rows else ["text"] * len(headings)
    head = "".join(
        f"<th scope='col' class='{of_cells}'>"
        f"<button type='button'>{html.escape(heading)}</button></th>"
        for heading, of_cells in zip(headings, kinds, strict=True)
    )
    body = "".join(_row(headings, cells) for cells in rows)
    parts = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"<table class='sortable {kind}'>{parts}</table>"


def _row(headings: Sequence[str], cells: Sequence[Cell]) -> str:
    """Return a row of a table."""
    parts = []
    for place, (heading, cell) in enumerate(zip(headings, cells, strict=True)):
        tag = "td"
        scope = ""
        if place == 0:
            tag, scope = "th", " scope='row'"
        label, key = html.escape(heading), html.escape(cell.key)
        parts.append(
            f"<{tag}{scope} class='{cell.kind}' data-label='{label}' data-key='{key}'>"
            f"<div>{cell.content}</div></{tag}>"
        )
    return f"<tr>{''.join(parts)}</tr>"


def section(title: str, *parts: str) -> str:
    """Return a section of the page: its heading, and parts that are HTML."""
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def note(words: str) -> str:
    """Return a paragraph that explains a table or figures."""
    return f"<p class='note'>{html.escape(words)}</p>"


def items(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of ``(what, about what)``: a sentence, and the names that it is about."""
    found = [
        f"<li>{html.escape(sentence)} <span class='about'>({html.escape(names)})</span></li>"
        for sentence, names in pairs
    ]
    return f"<ul>{''.join(found)}</ul>"


def listed_names(names: Sequence[str], total: int) -> str:
    """Return names in words; "all posteriors" where they are all of several.

    Args:
        names: The names.
        total: How many there are in all.
    """
    if len(names) == total > 1:
        return "all posteriors"
    return ", ".join(names)


def figure(title: str, caption: str, picture: str) -> str:
    """Return a figure with its caption below it.

    Args:
        title: What it shows, in a few words.
        caption: How to read it.
        picture: A PNG in base 64.
    """
    alt = html.escape(title)
    words = f"<strong>{alt}.</strong> {html.escape(caption)}".strip()
    image = f"<img alt='{alt}' src='data:image/png;base64,{picture}'>"
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>"
