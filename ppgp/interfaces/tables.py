"""Flat records as a table on the terminal."""

from __future__ import annotations

from typing import Any

#: what is in the report, and too long or too many for a terminal
HIDDEN = (
    *(
        "warnings",
        "guarantee",
        "reason",
        "predictions_reason",
        "predictive_shift",
        "interval_content",
        "brier",
    ),
    *("n_train", "n_calibration", "n_test"),
)
WHERE_TRUE = ("interrupted",)  # a column that is False throughout is left out


def print_table(rows: list[dict[str, Any]], title: str) -> None:
    """On the terminal; into a pipe, wide enough for every column."""
    from rich.console import Console
    from rich.table import Table

    rows = [_with_errors(row) for row in rows]
    columns = [
        c
        for c in rows[0]
        if c not in HIDDEN and (c not in WHERE_TRUE or any(row[c] for row in rows))
    ]
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(
            column.replace("conformal_", "conf. ").replace("_", " "),
            justify="left" if isinstance(rows[0][column], str) else "right",
        )
    for row in rows:
        table.add_row(
            *[
                f"{row[c]:.4g}"
                if isinstance(row[c], float)
                else ""
                if row[c] is None
                else str(row[c])
                for c in columns
            ]
        )
    console = Console()
    # a table in a pipe or a narrow terminal keeps its columns rather than its margins
    console = Console(width=max(console.width, 160)) if not console.is_terminal else console
    console.print(table)


def _with_errors(row: dict[str, Any]) -> dict[str, Any]:
    """A figure and its standard error, ``name`` and ``name_se``, in one cell."""
    errors = {k.removesuffix("_se"): v for k, v in row.items() if k.endswith("_se")}
    own = {k: v for k, v in row.items() if k not in {f"{name}_se" for name in errors}}
    return {k: v if errors.get(k) is None else f"{v:.3g} ± {errors[k]:.1g}" for k, v in own.items()}
