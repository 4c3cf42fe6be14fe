"""Ranks that are killed: the fit goes on from its checkpoint, or all processes end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.team.test_team import launch

SCRIPT = Path(__file__).with_name("killed.py")


def digests(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.glob("rank *")}


@pytest.mark.slow
def test_restarted_fit_ends_bit_equal(tmp_path):
    kills = 3
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for folder, count in ((undisturbed, 0), (killed, kills)):
        folder.mkdir()
        done = launch(
            SCRIPT, 2, str(folder), str(count), "1500", options=(f"--max-restarts={count}",)
        )
        assert done.returncode == 0, done.stderr[-3000:]
    names = [path.name for path in killed.glob("rank *")]
    assert all(name.endswith(f"after {kills} starts") for name in names), names
    assert len(names) == 2
    assert len(digests(undisturbed)) == 1  # all ranks have the same numbers
    assert digests(killed) == digests(undisturbed)


@pytest.mark.slow
def test_without_restarts_all_processes_end(tmp_path):
    started = time.monotonic()
    done = launch(SCRIPT, 3, str(tmp_path), "1", "100000")
    assert done.returncode != 0
    assert time.monotonic() - started < 120  # the start included; a hanging rank would take longer
    said = [line for line in done.stderr.splitlines() if "LostRank" in line]
    assert len(said) == 1
    assert "none from rank" in said[0]
    assert "they continue from" in said[0]
