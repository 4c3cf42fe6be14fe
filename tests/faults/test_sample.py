"""A sample of the fault campaign; ``make faults`` runs all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: cases of each part, and their seeds
SAMPLE = {"interrupts": (5, 1), "disks": (3, 0), "tables": (12, 1), "pairs": (2, 1)}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for orphans in /proc")
@pytest.mark.parametrize("part", SAMPLE)
def test_a_sample_of_faults_has_no_failures(part: str) -> None:
    count, seed = SAMPLE[part]
    words = [word for name in SAMPLE for word in (f"--{name}", str(count if name == part else 0))]
    # a process of its own: forked cases must not inherit the threads of the suite
    found = subprocess.run(
        [sys.executable, "-m", "tests.faults.campaign", "--seed", str(seed), *words],
        cwd=ROOT,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr + found.stdout
