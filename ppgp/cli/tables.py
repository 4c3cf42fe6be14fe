"""Flat records printed as a table on the terminal."""

from __future__ import annotations

from typing import Any

#: columns of the report that are too long or too many for a terminal
HIDDEN = (
    "warnings",
    "guarantee",
    "reason",
    "predictions_reason",
    "predictive_shift",
    "interval_content",
    "brier",
    "conformal_band",
    "n_train",
    "n_calibration",
    "n_test",
)
WHERE_TRUE = ("interrupted",)  # columns that are left out if every entry is False
PIPE_WIDTH = 200  # characters, at least, where the output is no terminal


def print_table(rows: list[dict[str, Any]], title: str) -> None:
    """Print one row per record; into a pipe, wide enough for every column.

    Args:
        rows: Records with the same keys.
        title: Title above the table.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows = [_with_errors(row) for row in rows]
    table = Table(title=escape(title), title_justify="left")
    columns = [column for column in rows[0] if _is_shown(column, rows)]
    for column in columns:
        heading = column.replace("conformal_", "conf. ").replace("_", " ")
        if isinstance(rows[0][column], str):
            table.add_column(heading, justify="left")
        else:
            table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*[escape(_cell(row[column])) for column in columns])
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, PIPE_WIDTH))
    console.print(table)


def _is_shown(column: str, rows: list[dict[str, Any]]) -> bool:
    if column in HIDDEN:
        return False
    return column not in WHERE_TRUE or any(row[column] for row in rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _with_errors(row: dict[str, Any]) -> dict[str, Any]:
    """Merge a number ``name`` and its standard error ``name_se`` into one cell."""
    merged = {key: value for key, value in row.items() if not key.endswith("_se")}
    for key, value in merged.items():
        error = row.get(f"{key}_se")
        if error is not None:
            merged[key] = f"{value:.3g} ± {error:.1g}"
    return merged
