"""What commands print: tables on the terminal, one JSON object, and errors of writing.

A result that the operating system refuses to write is one sentence and exit status 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, TextIO

import typer

from ..display.json_values import json_value
from ..errors import StorageError

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

Json = Annotated[
    bool,
    typer.Option("--json", help="print one JSON object in place of tables and text"),
]


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


def print_json(command: str, **results: Any) -> None:
    """Print one JSON object: the name of the command, and its results.

    Args:
        command: The name of the command.
        **results: What it found; ``rows`` are the records of its table.
    """
    content = {"command": command, **results}
    typer.echo(json.dumps(json_value(content), indent=2))


class NotWritten(StorageError):
    """A result could not be written; its path had passed the checks before the work."""


@contextmanager
def results() -> Iterator[None]:
    """Write results inside the block.

    Raises:
        NotWritten: If the operating system refuses it.
    """
    try:
        yield
    except StorageError as error:
        raise NotWritten(error.expected, error.got, error.do) from error


@contextmanager
def whole_output() -> Iterator[None]:
    """Flush the standard output at the end, so that an error is not met later at exit.

    Raises:
        SystemExit: With status 1, if the operating system refuses what was printed.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:  # errors of other files are StorageErrors
        with suppress(OSError):
            print(f"ppgp: {_not_printed(error)}", file=sys.stderr, flush=True)
        for stream in (sys.stdout, sys.stderr):
            _silence(stream)
        raise SystemExit(1) from None


def _not_printed(error: OSError) -> NotWritten:
    """Return the error for what the standard output does not take."""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return NotWritten("to write the standard output", reason, "send it to another file or disk")


def _silence(stream: TextIO | None) -> None:
    """Discard the buffer of a stream that cannot be written, so that exit raises no traceback."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    except (AttributeError, ValueError):  # a replacement without flush, or a closed stream
        pass
