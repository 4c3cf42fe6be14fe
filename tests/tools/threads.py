"""The table of the documentation of a Gaussian process's gradient on one thread and on two.

``python tests/tools/threads.py`` measures and prints it, and with ``--write`` replaces the one in
docs/speed.md. A time is the shortest of several evaluations, as other processes only add to it; the
numbers of threads alternate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import tables_of_docs

# isort: off
import ppgp  # before torch, so that threads sleep while they wait
import torch

# isort: on
from ppgp.density import Target
from ppgp.runtime.threads import at_most, available_cores, threads_for

NAME = "threads"  # of the marks in the documentation
ROWS = (100, 350, 1000, 2000, 3000)
THREADS = (1, 2)
COLUMNS = 10
ROUNDS = 7

Times = Mapping[int, Mapping[int, float]]


def model() -> ppgp.models.GP:
    """Return the process: a lengthscale for each column."""
    return ppgp.models.GP(ppgp.kernels.ARD(ppgp.kernels.RBF()))


def chosen(n: int) -> int:
    """Return the threads that the library chooses for n rows, without a limit of the caller."""
    return threads_for(model().work(n, COLUMNS))


def gradient(n: int) -> Callable[[], object]:
    """Return a function that evaluates the log density of n rows and its gradient."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, COLUMNS, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    target = Target(model(), ppgp.Dataset(X, X[:, 0].sin() + 0.3 * noise))
    call, z = target.callback(), target.start(0).numpy()
    return lambda: call(z)


def seconds(work: Callable[[], object], rounds: int = ROUNDS) -> dict[int, float]:
    """Return {threads: shortest seconds of the work}."""
    times: dict[int, list[float]] = {number: [] for number in THREADS}
    for _ in range(rounds):
        for number, of_number in times.items():
            with at_most(number):
                work()  # wakes the threads
                started = time.perf_counter()
                work()
                of_number.append(time.perf_counter() - started)
    return {number: min(each) for number, each in times.items()}


def measured() -> dict[int, dict[int, float]]:
    """Return {rows: {threads: seconds}}."""
    return {n: seconds(gradient(n)) for n in ROWS}


def table(times: Times) -> str:
    """Return the table as Markdown, given {rows: {threads: seconds}}."""
    heads = ["1 thread" if k == 1 else f"{k} threads" for k in THREADS]
    lines = ["| rows | " + " | ".join([*heads, "chosen"]) + " |", "|---" * (len(heads) + 2) + "|"]
    for n, of_n in times.items():
        cells = [f"{_rounded(1e3 * of_n[k])} ms" for k in THREADS]
        lines.append(f"| {n:,} | " + " | ".join([*cells, str(chosen(n))]) + " |")
    return "\n".join(lines) + "\n"


def _rounded(x: float) -> str:
    """Return x with three digits, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(x)))
    return f"{float(f'{x:.3g}'):,.{digits}f}"


if __name__ == "__main__":
    if available_cores() < max(THREADS):
        raise SystemExit(f"the table needs {max(THREADS)} cores, got {available_cores()}")
    tables_of_docs.show(NAME, table(measured()))
