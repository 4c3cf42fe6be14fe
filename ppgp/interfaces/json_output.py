"""The results of a command as JSON on the standard output."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

__all__ = ["Json", "json_value", "print_json"]


Json = Annotated[
    bool,
    typer.Option("--json", help="print one JSON object in place of tables and text"),
]


def print_json(command: str, **results: Any) -> None:
    """Print one JSON object: the name of the command, and its results.

    Args:
        command: The name of the command.
        **results: What it found; ``rows`` are the records of its table.
    """
    content = {"command": command, **results}
    typer.echo(json.dumps(json_value(content), indent=2))


def json_value(value: Any) -> Any:
    """Return a JSON value: NaN and infinity, which JSON lacks, become None.

    Numbers then stay a column of numbers: the end of an interval that is unbounded is None.
    """
    if isinstance(value, Mapping):
        return {str(key): json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item"):  # a number of NumPy
        return json_value(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
