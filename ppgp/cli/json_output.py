"""The results of a command as JSON on the standard output."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ..display.json_values import json_value

__all__ = ["Json", "print_json"]


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
