"""The result of a scene: what it is without faults, and whether a fault damaged it."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from .cases import Outcome, answer, run
from .counts import Counts
from .scenes import Scene, digest


@dataclass
class Known:
    """The result of a scene without faults, how long it takes in seconds, and its size in bytes."""

    seconds: float
    result: str | None
    size: int = 0


def undisturbed(scene: Scene, base: Path) -> Known:
    """Return what a scene gives without faults."""
    one = base / "undisturbed"
    shutil.copytree(base / "stage", one)
    found = run(scene.work, one)
    assert found.code == 0, f"{scene.name}: {found.err}"
    known = Known(found.seconds, None)
    if scene.result:
        result = one / scene.result
        known = Known(found.seconds, answer(lambda: digest(result), one), result.stat().st_size)
    shutil.rmtree(one)
    return known


def judge_result(
    counts: Counts,
    case: str,
    scene: Scene,
    found: Outcome,
    one: Path,
    known: Known,
    old: bool,
    look: Path,
) -> None:
    """Count a result that is neither the old one nor the complete new one.

    Args:
        counts: Where to count.
        case: The name of the case.
        scene: The scene.
        found: How the case ended.
        one: The folder of the case.
        known: What the scene gives without faults.
        old: Whether a posterior was at the path of the result before.
        look: The folder of the processes that read the results.
    """
    result = one / scene.result
    whole = digest if result.suffix == ".safetensors" else bytes_of
    now = answer(lambda: whole(result), look) if result.exists() else "none"
    before = answer(lambda: whole(one / "fit.safetensors"), look) if old else "none"
    if now not in (before, known.result):
        counts.add(
            "lost or damaged files",
            case,
            f"{scene.result} is {now}, was {before}, becomes {known.result}",
        )
    elif found.code == 0 and now != known.result:
        counts.add("silent differences", case, f"exit 0 without {scene.result}")


def bytes_of(path: Path) -> str:
    """Return a digest of the bytes of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
