"""Time of ``import ppgp`` and of ``ppgp --help``, each in a fresh process.

The limits are for processor time. One thread runs, so that it is the time on an idle machine.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from typing import Any

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


def seconds(*words: str) -> tuple[float, float]:
    """Return the processor time and the elapsed time of Python with these words."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after, elapsed = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return spent, elapsed


def medians() -> dict[str, tuple[float, float]]:
    """Return the median processor and elapsed times of all commands, run in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, words in COMMANDS.items():
            times[name].append(seconds(*words))
    return {
        name: (statistics.median(t[0] for t in each), statistics.median(t[1] for t in each))
        for name, each in times.items()
    }


def test_import_and_help_are_quick(benchmark: Any) -> None:
    found = benchmark.pedantic(medians, rounds=1)
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
