"""Signals at random moments.

The old result or the complete new one must remain, and a run must resume from its checkpoint to the
result it would have had.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
from pathlib import Path

from .cases import Fault, Outcome, answer, run
from .counts import Counts, how_it_ended
from .results import Known, judge_result, undisturbed
from .scenes import Scene, digest, scenes, stage

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def campaign(seed: int, count: int, folder: Path) -> Counts:
    """Run cases with signals, cycling through scenes and signals."""
    counts = Counts("interrupts")
    r = random.Random(seed)
    base = folder / "interrupts"
    stage(base / "stage")
    known: dict[str, Known] = {}
    order = scenes()
    r.shuffle(order)
    for number in range(count):
        scene = order[number % len(order)]
        signum = SIGNALS[(number + number // len(order)) % len(SIGNALS)]
        if scene.name not in known:
            known[scene.name] = undisturbed(scene, base)
        one = base / str(number)
        shutil.copytree(base / "stage", one)
        old = r.random() < 0.5 and scene.result != ""
        if old:
            shutil.copy(one / "fit.safetensors", one / scene.result)
        after = r.uniform(0.0, 1.05) * known[scene.name].seconds
        group = signum == signal.SIGINT and r.random() < 0.5
        found = run(scene.work, one, Fault(signum, after, group=group))
        case = f"{number}: {scene.name}, {signum.name} after {after:.2f} s"
        judge(counts, case, scene, signum, found, one, known[scene.name], old)
        print(f"{case}: {found.code}, {found.seconds:.1f} s", file=sys.stderr, flush=True)
        shutil.rmtree(one, ignore_errors=True)
    return counts


def judge(
    counts: Counts,
    case: str,
    scene: Scene,
    signum: signal.Signals,
    found: Outcome,
    one: Path,
    known: Known,
    old: bool,
) -> None:
    """Count the failures of one case."""
    counts.cases += 1
    counts.slowest_stop = max(counts.slowest_stop, found.after_signal)
    how_it_ended(counts, case, found, (0, 128 + signum))
    if found.hung:
        return
    if scene.result:
        judge_result(counts, case, scene, found, one, known, old, look=one)
    for partial in one.glob("*.partial.*"):
        if answer(lambda path=partial: digest(path), one) is None:
            counts.add("lost or damaged files", case, f"{partial.name} cannot be read")
    if scene.resumes and found.code != 0:
        judge_resumed(counts, case, scene, one, known)


def judge_resumed(counts: Counts, case: str, scene: Scene, one: Path, known: Known) -> None:
    """Run the scene again, and count a failure if it does not resume to the same result."""
    again = run(scene.work, one)
    if again.code != 0:
        counts.add(
            "lost or damaged files", case, f"does not go on: {again.code}, {again.err[-500:]}"
        )
    elif answer(lambda: digest(one / scene.result), one) != known.result:
        counts.add("silent differences", case, "goes on to another result")
