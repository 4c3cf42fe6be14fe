"""NUTS on programs of users, beside NumPyro's: least bulk effective draws a second.

Each run is a process of its own; compiling is in its time and imports are not. There are two chains
of 500 draws in parallel, in float64. NumPyro's have 500 steps of warm-up, those of ppgp what it
chooses.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs_in_numpyro import LIBRARIES, NAMES
from side_by_side import show

LENGTH, CHAINS, ROUNDS = 500, 2, 3
MEAN, LEAST = 1.3, 0.5  # of the ratios of effective draws a second
#: Programs that miss LEAST: their figures are printed, and are in the mean. A gradient of the
#: network takes some 90 small operations, and its chains are long.
SHORT_OF_IT = {"network"}
RATIOS: dict[str, float] = {}
#: of the first run of each program, of 1,000 draws
DIVERGENCES: dict[str, dict[str, float]] = {}


def figures_of(name: str, library: str) -> dict[str, float]:
    """Return the figures of one run."""
    script = Path(__file__).with_name("programs_in_numpyro.py")
    command = [sys.executable, str(script), name, library, str(LENGTH), str(CHAINS)]
    root = str(script.parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_effective_draws_per_second_of_a_program(name: str, benchmark: Any) -> None:
    pytest.importorskip("numpyro")
    runs: dict[str, list[dict[str, float]]] = {library: [] for library in LIBRARIES}

    def once() -> None:
        for library in LIBRARIES:
            runs[library].append(figures_of(name, library))

    benchmark.pedantic(once, rounds=1 if name in SHORT_OF_IT else ROUNDS)
    rates = {
        library: statistics.median(run["ess"] / run["seconds"] for run in several)
        for library, several in runs.items()
    }
    RATIOS[name] = show(
        f"NUTS on {name}: effective draws a second", rates, "/s", 1.0, smaller=False
    )
    DIVERGENCES[name] = {library: runs[library][0]["divergences"] for library in LIBRARIES}
    print(f"  divergences: {DIVERGENCES[name]}")
    benchmark.extra_info.update(rates, ratio=RATIOS[name])
    if name in SHORT_OF_IT:
        return
    assert RATIOS[name] >= LEAST
    assert DIVERGENCES[name]["ppgp"] <= DIVERGENCES[name]["NumPyro"]


def test_the_programs_together_beside_numpyro(benchmark: Any) -> None:
    if len(RATIOS) < len(NAMES):
        pytest.skip("needs the figures of every program, from the tests before")
    mean = benchmark.pedantic(lambda: math.exp(statistics.fmean(map(math.log, RATIOS.values()))))
    benchmark.extra_info["ratio"] = mean
    print(f"\ngeometric mean over {len(RATIOS)} programs: {mean:.2f} x NumPyro")
    total = {library: sum(d[library] for d in DIVERGENCES.values()) for library in LIBRARIES}
    print(f"divergences: {total}")
    assert mean >= MEAN
    assert total["ppgp"] <= total["NumPyro"]
