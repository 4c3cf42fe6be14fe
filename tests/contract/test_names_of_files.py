"""Names of the files of tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports a file under its name alone, and does not collect a second one."""
    tests = Path(__file__).parents[1]
    names = Counter(path.name for path in tests.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
