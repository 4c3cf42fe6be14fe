"""The scripts of tests/tools as modules."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "tools"


def tool(name: str) -> Any:
    """Import a script of tests/tools, which may import its neighbours."""
    sys.path.insert(0, str(FOLDER))
    try:
        return import_module(name)
    finally:
        sys.path.pop(0)
