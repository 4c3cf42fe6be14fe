"""The folder of the published data sets that some tests and benchmarks read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("PPGP_DATA") or ROOT / "data").absolute()
ADVICE = f"the folder is {FOLDER} (variable PPGP_DATA); docs/data.md says how to get the data"


def missing(names: Iterable[str]) -> list[str]:
    """Return the files and folders that are not there; with no names, check the whole folder."""
    return [name for name in (list(names) or ["."]) if not (FOLDER / name).exists()]
