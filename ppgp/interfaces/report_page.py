"""The page of the report: HTML that refers to no other file."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}
th,td{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
td.text{text-align:left}img{max-width:100%;margin:.5rem 0}.note{color:#666;font-size:13px}
"""


def page_of(rows: list[dict[str, Any]], about: Mapping[str, Any], sections: list[str]) -> str:
    """Return the page as HTML that refers to no other file."""
    hidden = {"warnings", "guarantee"}
    if not any(row["interrupted"] for row in rows):
        hidden.add("interrupted")
    columns = [column for column in rows[0] if column not in hidden]
    head = "".join(f"<th>{html.escape(column.replace('_', ' '))}</th>" for column in columns)
    body = "".join(_line(row, columns) for row in rows)
    facts = "".join(
        f"<li>{html.escape(str(key))}: {html.escape(str(value))}</li>"
        for key, value in about.items()
    )
    guarantees = "".join(_item(row, row["guarantee"]) for row in rows if row["guarantee"])
    warned = "".join(_item(row, warning) for row in rows for warning in row["warnings"])
    if not guarantees:
        guarantees = "<li>nothing: no calibration rows</li>"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>ppgp report</title>",
        f"<style>{STYLE}</style></head><body><h1>ppgp compare</h1><ul>{facts}</ul>",
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        "<p class='note'>coverage and width: the model's own interval; conformal: after "
        "calibration on rows that are not training rows.</p>",
        f"<h2>What is guaranteed</h2><ul>{guarantees}</ul>",
    ]
    if warned:
        parts.append(f"<h2>Warnings</h2><ul>{warned}</ul>")
    return "".join([*parts, *sections, "</body></html>\n"])


def _item(row: Mapping[str, Any], text: str) -> str:
    """Return a list item about one posterior."""
    title = f"{html.escape(row['model'])} {html.escape(row['how'])}"
    return f"<li><b>{title}</b>: {html.escape(text)}</li>"


def _line(row: Mapping[str, Any], columns: list[str]) -> str:
    """Return a line of the table."""
    cells = "".join(_cell(row.get(column)) for column in columns)
    return f"<tr>{cells}</tr>"


def _cell(value: Any) -> str:
    """Return a cell of the table: numbers with four digits, anything else as text."""
    if isinstance(value, float):
        return f"<td>{value:.4g}</td>"
    if value is None:
        value = ""
    return f"<td class='text'>{html.escape(str(value))}</td>"
