"""The table of data sets in docs/data.md, and the script that compares a folder with it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """tests/tools/check_data.py as a module."""
    path = ROOT / "tests" / "tools" / "check_data.py"
    spec = importlib.util.spec_from_file_location("check_data", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_of_the_table_has_a_checksum(script: ModuleType) -> None:
    lines = (ROOT / "docs" / "data.md").read_text().splitlines()
    assert len(script.expected()) == sum(line.startswith("| `") for line in lines) > 0


def test_every_file_that_a_test_needs_is_in_the_table(script: ModuleType) -> None:
    needed = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for marks in re.findall(r"mark\.data\(([^)]*)\)", path.read_text()):
            needed |= set(re.findall(r'"([^"]+)"', marks))
    assert needed
    for name in needed:
        assert any(file == name or file.startswith(f"{name}/") for file in script.expected()), name


def test_a_checksum_of_arrays_does_not_depend_on_their_compression(
    script: ModuleType, tmp_path: Path
) -> None:
    arrays = {"X": np.arange(6.0).reshape(2, 3), "y": np.arange(2)}
    plain, small, other = (tmp_path / f"{name}.npz" for name in ("plain", "small", "other"))
    np.savez(plain, **arrays)
    np.savez_compressed(small, **dict(reversed(arrays.items())))
    np.savez(other, **arrays | {"y": np.arange(1, 3)})
    assert script.checksum(plain) == script.checksum(small) != script.checksum(other)


def test_files_are_ok_missing_or_different(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    assert script.verdict(path, "0" * 64) == "missing"
    path.write_text("a\n")
    assert script.verdict(path, "0" * 64) == "differs"
    assert script.verdict(path, script.checksum(path)) == "ok"
