"""Ranks that are killed: the fit goes on from its checkpoint, or all processes end."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from tests.parquet_tables import columns_of, write
from tests.team.test_team import launch

SCRIPT = Path(__file__).with_name("killed.py")


def digests(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.glob("rank *")}


@pytest.mark.slow
@pytest.mark.parametrize(("place", "kills"), [("memory", 3), ("files", 1)])
def test_restarted_fit_ends_bit_equal(tmp_path, place, kills):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    files = []
    if place == "files":
        X = np.random.default_rng(1).normal(size=(2_001, 3))
        write(tmp_path / "rows" / "a.parquet", 100, **columns_of(X, np.sin(X[:, 0])))
        files = [str(tmp_path / "rows")]
    for folder, count in ((undisturbed, 0), (killed, kills)):
        folder.mkdir()
        arguments = str(folder), str(count), "900", *files
        done = launch(SCRIPT, 2, *arguments, options=(f"--max-restarts={count}",))
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
