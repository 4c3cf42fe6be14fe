"""Fits of `make demo` and gradients of large GPs while other processes keep the cores busy.

Each measurement runs in a process of its own without OMP_NUM_THREADS. Pairs are run in alternation
under the same load: the library's number of threads against one thread, and for large problems
also against all threads.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

CORES = os.cpu_count() or 1
#: rounds of pairs beside so many busy processes
ROUNDS = {0: 3, 4: 2, 16: 1}
SPIN = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end:\n    pass\n"
FITS = """
import statistics, time, warnings
warnings.simplefilter("ignore")
import ppgp
from ppgp.recipes.parsing import build_how, build_model

train, *_ = ppgp.load("diabetes").split(0.6, 0.2, 0.2, seed=0)
for name, repeats in (("gp", 1), ("linear", 7)):  # the linear ones take some tenths of a second
    for how in ("map", "laplace", "svi", "nuts"):
        method = build_how(how)
        if how == "nuts":  # fewer draws than the demo, of the same density
            method = type(method)(draws=10, warmup=20)
        if how == "svi":
            method = type(method)(steps=300)
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            ppgp.fit(build_model(name), train, method, progress=False)
            times.append(time.perf_counter() - started)
        print(f"{name}-{how}", statistics.median(times), flush=True)
"""
GRADIENT = """
import statistics, time, torch
import ppgp
from ppgp.runtime.threads import limited
from ppgp.density import Target

n = {n}
g = torch.Generator().manual_seed(0)
X = torch.randn(n, 10, generator=g, dtype=torch.float64)
data = ppgp.Dataset(X, X[:, 0].sin())
model = ppgp.models.GP(ppgp.kernels.ARD(ppgp.kernels.RBF()))
target = Target(model, data)
call, z = target.callback(), target.start(0).numpy()
{before}
with limited(model.work(n, 10)):
    call(z)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        call(z)
        times.append(time.perf_counter() - started)
print("gradient", statistics.median(times))
"""
ALL = "from ppgp.runtime import threads\nthreads.threads_for = lambda *_: threads.available_cores()"


@contextmanager
def busy(processes: int, seconds: float = 1200.0) -> Iterator[None]:
    """Run processes that keep one core busy each, for at most so many seconds."""
    running = [
        subprocess.Popen([sys.executable, "-c", SPIN.format(seconds=seconds)])
        for _ in range(processes)
    ]
    try:
        time.sleep(1.0)
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def timed(code: str, **environment: str) -> dict[str, float]:
    """Run code in a new process and return the seconds that it prints for each name."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "MKL_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=1200,
    )
    return {
        name: float(seconds)
        for name, seconds in (line.split() for line in done.stdout.splitlines())
    }


def in_turn(
    work: dict[str, tuple[str, dict[str, str]]], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each round by setting and by name; settings alternate."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in work}
    for _ in range(rounds):
        for name, (code, environment) in work.items():
            for what, seconds in timed(code, **environment).items():
                times[name].setdefault(what, []).append(seconds)
    return times


@pytest.mark.parametrize("neighbours", [0, 4, 16])
def test_fits_of_the_demo_beside_busy_processes(neighbours: int, benchmark) -> None:
    """A fit takes at most 1.3 times the time of one thread under the same load."""
    work = {"ppgp": (FITS, {}), "one thread": (FITS, {"OMP_NUM_THREADS": "1"})}
    with busy(neighbours):
        times = benchmark.pedantic(in_turn, args=(work, ROUNDS[neighbours]), rounds=1)
    print(
        f"\nfits of the demo beside {neighbours} busy processes on {CORES} cores: "
        "seconds, and the median ratio of pairs"
    )
    ratios = {}
    for what, ours in times["ppgp"].items():
        alone = times["one thread"][what]
        ratios[what] = statistics.median(a / b for a, b in zip(ours, alone, strict=True))
        medians = f"{statistics.median(ours):8.2f} {statistics.median(alone):8.2f}"
        print(f"  {what:<16} {medians}   {ratios[what]:6.2f}")
    if neighbours:
        assert max(ratios.values()) <= 1.3


@pytest.mark.parametrize(
    ("n", "neighbours"), [(1000, 0), (2000, 0), (1000, 4), (2000, 4), (1000, 16)]
)
def test_gradients_of_large_processes_beside_busy_processes(
    n: int, neighbours: int, benchmark
) -> None:
    """A gradient takes at most twice the better of one thread and all threads."""
    work = {
        "ppgp": (GRADIENT.format(n=n, before=""), {}),
        "one thread": (GRADIENT.format(n=n, before=""), {"OMP_NUM_THREADS": "1"}),
        "all threads": (GRADIENT.format(n=n, before=ALL), {}),
    }
    with busy(neighbours):
        times = benchmark.pedantic(in_turn, args=(work, ROUNDS[neighbours]), rounds=1)
    medians = {name: statistics.median(found["gradient"]) for name, found in times.items()}
    shown = ", ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in medians.items())
    print(
        f"\nGP gradient, n = {n}, beside {neighbours} busy processes on {CORES} cores, ms: {shown}"
    )
    if neighbours:
        assert medians["ppgp"] <= 2 * min(medians["one thread"], medians["all threads"])
