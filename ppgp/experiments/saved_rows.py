"""Rows of an experiment, written as they are complete, so that a stopped run keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..files import append

NAME = "rows.jsonl"


def start_rows(out: Path) -> None:
    """Make the folder and remove the rows of an earlier run."""
    out.mkdir(parents=True, exist_ok=True)
    (out / NAME).unlink(missing_ok=True)


def append_rows(out: Path, *rows: dict[str, Any]) -> None:
    """Append one line of JSON per row."""
    append(out / NAME, "".join(json.dumps(row) + "\n" for row in rows))
