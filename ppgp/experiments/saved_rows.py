"""Rows of an experiment, written as they are complete, so that a stopped run keeps them."""

from __future__ import annotations

from pathlib import Path

from ..files import JsonLines


def start_rows(out: Path) -> JsonLines:
    """Return the log ``rows.jsonl`` of a folder, without the rows of an earlier run."""
    log = JsonLines(out / "rows.jsonl")
    log.clear()
    return log
