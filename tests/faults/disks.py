"""Full disks: the old file or the complete new one, and one sentence.

No exit code is 0 without the new file.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from .cases import Outcome, run
from .counts import Counts, how_it_ended
from .results import Known, judge_result, undisturbed
from .scenes import Scene, scenes, stage

SLOW = ("SBC with workers",)


def campaign(seed: int, count: int, folder: Path) -> Counts:
    """Run cases with limits from nothing to slightly more than the size of what is written."""
    counts = Counts("disks")
    r = random.Random(seed)
    base = folder / "disks"
    stage(base / "stage")
    known: dict[str, Known] = {}
    order = [scene for scene in scenes() if scene.result and scene.name not in SLOW]
    r.shuffle(order)
    small = mounted(base / "small")
    try:
        for number in range(count):
            scene = order[number % len(order)]
            if scene.name not in known:
                known[scene.name] = undisturbed(scene, base)
            disk = small and number % 2 == 1
            one = base / ("small/case" if disk else str(number))
            shutil.copytree(base / "stage", one)
            old = r.random() < 0.5
            if old:
                shutil.copy(one / "fit.safetensors", one / scene.result)
            room = int(r.uniform(0.0, 1.1) * known[scene.name].size)
            if disk:
                filled(one, room)
            found = run(scene.work, one, file_limit=None if disk else room, outputs=base)
            kind = "on a full disk" if disk else "under a limit of the size of files"
            judge(
                counts,
                f"{number}: {scene.name}, {room} bytes {kind}",
                scene,
                found,
                one,
                known[scene.name],
                old,
            )
            print(
                f"{number}: {scene.name}, {room} bytes: {found.code}, {found.seconds:.1f} s",
                file=sys.stderr,
                flush=True,
            )
            shutil.rmtree(one, ignore_errors=True)
    finally:
        if small:
            subprocess.run(["umount", str(base / "small")], check=False)
    return counts


def mounted(folder: Path) -> bool:
    """Mount a disk of 400 kB, which requires root, and return whether it succeeded."""
    folder.mkdir(parents=True)
    try:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True
        )
    except OSError:
        return False
    return made.returncode == 0


def filled(folder: Path, room: int) -> None:
    """Leave ``room`` bytes free on the disk of a folder."""
    state = os.statvfs(folder)
    size = max(0, state.f_bavail * state.f_frsize - room)
    (folder / "ballast").write_bytes(b"\1" * size)


def judge(
    counts: Counts, case: str, scene: Scene, found: Outcome, one: Path, known: Known, old: bool
) -> None:
    """Count the failures of one case."""
    counts.cases += 1
    how_it_ended(
        counts, case, found, raw=found.raw and bool(scene.command or "ppgp.errors" not in found.err)
    )
    if found.hung:
        return
    (one / "ballast").unlink(missing_ok=True)
    scratch = one.parent
    if one.name == "case":
        scratch = scratch.parent
    judge_result(counts, case, scene, found, one, known, old, look=scratch / "look")
    beside = [
        path.name
        for path in one.iterdir()
        if path.name.startswith(scene.result) and path.name != scene.result
    ]
    if beside:
        counts.add("lost or damaged files", case, f"left behind: {', '.join(beside)}")
