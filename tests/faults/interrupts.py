"""Signals at random moments.

The old result or the complete new one must remain, and a run must resume from its checkpoint to the
result it would have had.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from .cases import Fault, Outcome, answer, run
from .counts import Counts, how_it_ended
from .scenes import Scene, digest, scenes, stage

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@dataclass
class Known:
    """The result of a scene without faults, and how long it takes in seconds."""

    seconds: float
    result: str | None


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


def undisturbed(scene: Scene, base: Path) -> Known:
    """Return what a scene gives without faults."""
    one = base / "undisturbed"
    shutil.copytree(base / "stage", one)
    found = run(scene.work, one)
    assert found.code == 0, f"{scene.name}: {found.err}"
    result = None
    if scene.result:
        result = answer(lambda: digest(one / scene.result), one)
    shutil.rmtree(one)
    return Known(found.seconds, result)


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
        judge_result(counts, case, scene, found, one, known, old)
    for partial in one.glob("*.partial.*"):
        if answer(lambda path=partial: digest(path), one) is None:
            counts.add("lost or damaged files", case, f"{partial.name} cannot be read")
    if scene.resumes and found.code != 0:
        judge_resumed(counts, case, scene, one, known)


def judge_result(
    counts: Counts,
    case: str,
    scene: Scene,
    found: Outcome,
    one: Path,
    known: Known,
    old: bool,
) -> None:
    """Count a result that is neither the old one nor the complete new one."""
    result = one / scene.result
    now = answer(lambda: digest(result), one) if result.exists() else "none"
    before = answer(lambda: digest(one / "fit.safetensors"), one) if old else "none"
    if old and now is not None and result.suffix != ".safetensors":
        before = answer(lambda: bytes_of(one / "fit.safetensors"), one)
    if now not in (before, known.result):
        counts.add(
            "lost or damaged files",
            case,
            f"{scene.result} is {now}, was {before}, becomes {known.result}",
        )
    elif found.code == 0 and now != known.result:
        counts.add("silent differences", case, f"exit 0 without {scene.result}")


def judge_resumed(counts: Counts, case: str, scene: Scene, one: Path, known: Known) -> None:
    """Run the scene again, and count a failure if it does not resume to the same result."""
    again = run(scene.work, one)
    if again.code != 0:
        counts.add(
            "lost or damaged files", case, f"does not go on: {again.code}, {again.err[-500:]}"
        )
    elif answer(lambda: digest(one / scene.result), one) != known.result:
        counts.add("silent differences", case, "goes on to another result")


def bytes_of(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()
