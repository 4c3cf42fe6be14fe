"""The list of sentences that no test executes names sentences of today."""

from __future__ import annotations

from pathlib import Path

from tool_modules import tool

ROOT = Path(__file__).parents[2]
UNRAISED = ROOT / "tests" / "unraised_messages.txt"


def test_each_is_a_template_of_today_and_stands_once() -> None:
    lines = [line for line in UNRAISED.read_text().splitlines() if not line.startswith("#")]
    assert sorted(set(lines)) == sorted(lines)
    assert set(lines) - tool("messages").of_package(ROOT) == set()
