"""Rows of an experiment in a file as they are done: they stay, should the rest be stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..files import append

NAME = "rows.jsonl"


def begun(out: Path) -> None:
    """The folder, without the rows of an earlier run."""
    out.mkdir(parents=True, exist_ok=True)
    (out / NAME).unlink(missing_ok=True)


def done(out: Path, *rows: dict[str, Any]) -> None:
    """One line each."""
    append(out / NAME, "".join(json.dumps(row) + "\n" for row in rows))
