"""NUTS on programs of users, beside NumPyro's: least bulk effective draws a second.

There are two chains of 500 draws in parallel, in float64. NumPyro's have 500 steps of warm-up,
those of ppgp what it chooses. A run that is timed is a process of its own; compiling is in its time
and imports are not. Divergences are rare and depend on the seed: they are counted over 40 runs of
each program, or over five where neither library has any in these.
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
#: Runs over which divergences are counted, and those after which none is enough.
SEEDS, FIRST_SEEDS = 40, 5


def printed(name: str, library: str, *seeds: int) -> Any:
    """Return what one process prints: the figures of a run, or the divergences of several."""
    script = Path(__file__).with_name("programs_in_numpyro.py")
    rest = [str(number) for number in (LENGTH, CHAINS, *seeds)]
    command = [sys.executable, str(script), name, library, *rest]
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
            runs[library].append(printed(name, library))

    benchmark.pedantic(once, rounds=1 if name in SHORT_OF_IT else ROUNDS)
    rates = {
        library: statistics.median(run["ess"] / run["seconds"] for run in several)
        for library, several in runs.items()
    }
    RATIOS[name] = show(
        f"NUTS on {name}: effective draws a second", rates, "/s", 1.0, smaller=False
    )
    benchmark.extra_info.update(rates, ratio=RATIOS[name])
    if name in SHORT_OF_IT:
        return
    assert RATIOS[name] >= LEAST


@pytest.mark.parametrize("name", NAMES)
def test_divergences_of_a_program(name: str, benchmark: Any) -> None:
    pytest.importorskip("numpyro")
    counts: dict[str, list[int]] = {library: [] for library in LIBRARIES}

    def counted() -> None:
        for first, last in ((1, FIRST_SEEDS), (FIRST_SEEDS + 1, SEEDS)):
            for library in LIBRARIES:
                counts[library] += printed(name, library, first, last)
            if not any(map(any, counts.values())):
                return

    benchmark.pedantic(counted, rounds=1)
    total = {library: sum(several) for library, several in counts.items()}
    several = len(counts["ppgp"])
    draws = several * LENGTH * CHAINS
    print(f"\nNUTS on {name}: divergences of {draws:,} draws in {several} runs: {total}")
    benchmark.extra_info.update(divergences=total, runs=several)
    assert total["ppgp"] <= total["NumPyro"]


def test_the_programs_together_beside_numpyro(benchmark: Any) -> None:
    if len(RATIOS) < len(NAMES):
        pytest.skip("needs the figures of every program, from the tests before")
    mean = benchmark.pedantic(lambda: math.exp(statistics.fmean(map(math.log, RATIOS.values()))))
    benchmark.extra_info["ratio"] = mean
    print(f"\ngeometric mean over {len(RATIOS)} programs: {mean:.2f} x NumPyro")
    assert mean >= MEAN
