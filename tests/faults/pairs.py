"""Two runs at once, in threads and in processes.

Each must have the result that it has alone, or one of them must refuse with a sentence that names
the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .cases import Outcome, answer, fork, run, watch
from .counts import Counts, how_it_ended
from .scenes import Scene, digest, scenes, stage


def campaign(seed: int, count: int, folder: Path) -> Counts:
    """Run pairs: threads that fit or sample, processes with one checkpoint or one result."""
    counts = Counts("pairs")
    base = folder / "pairs"
    stage(base / "stage")
    kinds = [threads_that_fit, threads_that_draw, one_checkpoint, one_result]
    for number in range(count):
        one = base / str(number)
        shutil.copytree(base / "stage", one)
        counts.cases += 1
        kind = kinds[number % len(kinds)]
        case = f"{number}: {kind.__name__}"
        kind(counts, case, one, seed + number)
        print(case, file=sys.stderr, flush=True)
        shutil.rmtree(one, ignore_errors=True)
    return counts


def threads(counts: Counts, case: str, one: Path, work: Callable[[int], str]) -> None:
    """Run the same two pieces of work in sequence and in two threads, and compare the results."""

    def alone() -> None:
        Path("alone.json").write_text(json.dumps([work(i) for i in (0, 1)]))

    def together() -> None:
        with ThreadPoolExecutor(2) as pool:
            Path("together.json").write_text(json.dumps(list(pool.map(work, (0, 1)))))

    for part in (alone, together):
        how_it_ended(counts, case, run(part, one), (0,))
    paths = [one / "alone.json", one / "together.json"]
    if all(path.exists() for path in paths) and paths[0].read_text() != paths[1].read_text():
        counts.add("silent differences", case, "other draws than alone")


def threads_that_fit(counts: Counts, case: str, one: Path, seed: int) -> None:
    def work(i: int) -> str:
        import ppgp
        from ppgp import inference, models

        ways = (
            inference.SVI(steps=100, draws=20),
            inference.MAP(),
            inference.Laplace(draws=20),
            inference.SGLD(draws=20),
        )
        data = ppgp.load("data.csv", "y")
        posterior = ppgp.fit(
            models.LinearRegression(),
            data,
            ways[(seed + i) % len(ways)],
            seed=seed + i,
            progress=False,
        )
        return hashed(posterior.draws)

    threads(counts, case, one, work)


def threads_that_draw(counts: Counts, case: str, one: Path, seed: int) -> None:
    def work(i: int) -> str:
        import ppgp

        posterior = ppgp.load_posterior("fit.safetensors")
        X = ppgp.load("data.csv", "y").X
        return hashed({str(k): posterior.predict(X).sample(5, seed=seed + k) for k in range(20)})

    threads(counts, case, one, work)


def hashed(tensors: dict[str, Any]) -> str:
    found = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        found.update(name.encode() + value.contiguous().numpy().tobytes())
    return found.hexdigest()


def at_once(work: Callable[[], Any], one: Path) -> list[Outcome]:
    """Run the same work in two processes that start together."""
    started = time.monotonic()
    begun = []
    for i in (0, 1):
        out, err = one / f".out{i}", one / f".err{i}"
        begun.append((fork(work, one, out, err, None, {}), out, err))
    found = []
    for pid, out, err in begun:
        outcome = watch(pid, started, None)
        outcome.out, outcome.err = out.read_text(errors="replace"), err.read_text(errors="replace")
        found.append(outcome)
    return found


def two_processes(counts: Counts, case: str, one: Path, scene: Scene, refusals: int) -> None:
    """Run a scene in two processes at once; at most ``refusals`` of them may refuse."""
    alone = one / "alone"
    shutil.copytree(one, alone, ignore=shutil.ignore_patterns("alone", "*.checkpoint*"))
    how_it_ended(counts, case, run(scene.work, alone), (0,))
    right = answer(lambda: digest(alone / scene.result), one)
    both = at_once(scene.work, one)
    refused = [found for found in both if found.code == 2 or "StorageError" in found.err]
    for found in both:
        if found not in refused or (found.raw and scene.command):
            how_it_ended(counts, case, found, (0,))
    if len(refused) > refusals:
        counts.add("wrong exit codes", case, f"{len(refused)} refused: {refused[0].err[-300:]}")
    if answer(lambda: digest(one / scene.result), one) != right:
        counts.add("lost or damaged files", case, f"{scene.result} is not what it is alone")
    left = [
        name for name in os.listdir(one) if name.startswith(scene.result) and name != scene.result
    ]
    if left:
        counts.add("lost or damaged files", case, f"left behind: {', '.join(left)}")


def one_checkpoint(counts: Counts, case: str, one: Path, seed: int) -> None:
    own = [scene for scene in scenes() if scene.resumes]
    two_processes(counts, case, one, own[seed % len(own)], refusals=1)


def one_result(counts: Counts, case: str, one: Path, seed: int) -> None:
    own = [scene for scene in scenes() if scene.command and scene.result]
    two_processes(counts, case, one, own[seed % len(own)], refusals=0)
