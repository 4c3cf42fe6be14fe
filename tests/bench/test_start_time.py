"""Time of ``import ppgp`` and of commands, each in a fresh process.

The limits are for processor time. One thread runs, so that it is the time on an idle machine.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROUNDS = 9
IMPORT_SECONDS = 0.05  # at most, beside the start of Python
HELP_SECONDS = 0.4  # at most, with the start of Python
COMMANDS = {
    "Python alone": ("-c", "pass"),
    "import ppgp": ("-c", "import ppgp"),
    "import numpy": ("-c", "import numpy"),
    "import sklearn": ("-c", "import sklearn"),
    "ppgp --help": ("-m", "ppgp", "--help"),
    "ppgp list": ("-m", "ppgp", "list"),
}
REFUSAL_SECONDS = 0.6  # at most, of a table or an option that cannot be used
FIT_SECONDS = 3.5  # at most, of a small fit by MAP, from a .csv file to a posterior in a file
FIT_ROUNDS = 5
REFUSED = {
    "no such file": ("fit", "nothing.csv"),
    "no target": ("fit", "small.csv"),
    "no such column": ("fit", "small.csv", "--target", "z"),
    "text in a column": ("fit", "text.csv", "--target", "y"),
    "an empty cell": ("compare", "empty.csv", "--target", "y"),
    "a field too many": ("fit", "ragged.csv", "--target", "y"),
    "no such model": ("fit", "small.csv", "--target", "y", "--model", "gpp"),
    "no such posterior": ("predict", "nothing.safetensors", "small.csv"),
}
FIT = ("fit", "small.csv", "--target", "y", "--how", "map", "--no-progress")


def seconds(*words: str, folder: Path | None = None, status: int = 0) -> tuple[float, float]:
    """Return the processor time and the elapsed time of Python with these words."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # a user's Python keeps the modules that it has compiled
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    run = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert run.returncode == status, run.stderr
    after, elapsed = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return spent, elapsed


def medians(
    commands: Mapping[str, Sequence[str]],
    rounds: int = ROUNDS,
    folder: Path | None = None,
    status: int = 0,
) -> dict[str, tuple[float, float]]:
    """Return the median processor and elapsed times of all commands, run in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, words in commands.items():
            times[name].append(seconds(*words, folder=folder, status=status))
    return {
        name: (statistics.median(t[0] for t in each), statistics.median(t[1] for t in each))
        for name, each in times.items()
    }


def test_import_and_help_are_quick(benchmark: Any) -> None:
    found = benchmark.pedantic(lambda: medians(COMMANDS), rounds=1)
    print("\ntime to start: processor, elapsed")
    for name, (spent, elapsed) in found.items():
        print(f"  {name:<16} {spent:6.3f} s {elapsed:6.3f} s")
    python = found["Python alone"][0]
    own = found["import ppgp"][0] - python
    ratio = own / (found["import numpy"][0] - python)
    print(f"  import ppgp, beside Python: {ratio:.3f} of numpy's")
    benchmark.extra_info["ratio"] = ratio
    assert own <= IMPORT_SECONDS
    assert found["ppgp --help"][0] <= HELP_SECONDS


def tables_in(folder: Path) -> None:
    """Write a small table, and tables that cannot be used."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10.0, 50)
    frame = pd.DataFrame({"x": x, "y": np.sin(x) + 0.1 * rng.normal(size=50)})
    frame.to_csv(folder / "small.csv", index=False)
    many = pd.concat([frame] * 200, ignore_index=True)
    many.assign(kind="oak").to_csv(folder / "text.csv", index=False)
    many.assign(x=many["x"].where(many.index != 30)).to_csv(folder / "empty.csv", index=False)
    (folder / "ragged.csv").write_text("x,y\n" + "1.5,2.5\n" * 5_000 + "1,2,3\n")


def test_a_command_line_answers_at_once(benchmark: Any, tmp_path: Path) -> None:
    tables_in(tmp_path)
    refused = {name: ("-m", "ppgp", *words) for name, words in REFUSED.items()}
    found = medians(refused, folder=tmp_path, status=2)
    found |= benchmark.pedantic(
        lambda: medians({"a small fit by MAP": ("-m", "ppgp", *FIT)}, FIT_ROUNDS, tmp_path),
        rounds=1,
    )
    print("\ntime of a command: processor, elapsed")
    for name, (spent, elapsed) in found.items():
        print(f"  {name:<20} {spent:6.3f} s {elapsed:6.3f} s")
    spent, _ = found.pop("a small fit by MAP")
    assert max(refusal for refusal, _ in found.values()) <= REFUSAL_SECONDS
    assert spent <= FIT_SECONDS
