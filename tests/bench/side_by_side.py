"""Timing of several pieces of work in alternation: medians, and the ratio to the best peer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

PAUSE = 0.1


def alternate(
    work: Mapping[str, Callable[[], object]], rounds: int = 9, repeat: int = 1
) -> dict[str, float]:
    """Return the median seconds of each piece of work; a first round does not count.

    Each is timed after a pause and one run of its own. Threads of another library may still spin
    (OpenBLAS waits for tens of milliseconds), and would slow down the next piece of work.
    """
    times: dict[str, list[float]] = {name: [] for name in work}
    for round_number in range(rounds + 1):
        for name, function in work.items():
            time.sleep(PAUSE)
            function()
            started = time.perf_counter()
            for _ in range(repeat):
                function()
            if round_number:
                times[name].append((time.perf_counter() - started) / repeat)
    return {name: statistics.median(values) for name, values in times.items()}


def paired(
    ours: Callable[[], object], theirs: Callable[[], object], pairs: int = 100, first: int = 5
) -> tuple[float, float, float]:
    """Return the median seconds of processor of two pieces of work, and of their ratios by pair.

    Both are of one thread. Each pair begins with the other one, after ``first`` runs of both.
    """
    seconds: list[tuple[float, float]] = []
    for number in range(first + pairs):
        each = {}
        for work in (ours, theirs) if number % 2 else (theirs, ours):
            started = time.process_time()
            work()
            each[work] = time.process_time() - started
        if number >= first:
            seconds.append((each[ours], each[theirs]))
    mine, other = zip(*seconds, strict=True)
    return (
        statistics.median(mine),
        statistics.median(other),
        statistics.median(a / b for a, b in seconds),
    )


def show(
    title: str,
    figures: Mapping[str, float],
    unit: str,
    scale: float,
    ours: str = "ppgp",
    smaller: bool = True,
) -> float:
    """Print the table, and return the ratio of ours to the best peer."""
    peers = {
        name: value for name, value in figures.items() if name != ours and not name.startswith("(")
    }
    best = (min if smaller else max)(peers.values())
    print(f"\n{title}")
    for name, value in figures.items():
        ratio = figures[ours] / value
        print(f"  {name:<28} {value * scale:12.3f} {unit}   {ratio:8.3f} = {ours} / this")
    print(f"  {'ratio to the best peer':<28} {figures[ours] / best:12.3f}")
    return figures[ours] / best
