"""Full disks: a limit of file sizes, or a small file system that the superuser can mount."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = 4096
PAGES = 200


class Limited:
    """Limit the size of files. Python ignores the signal, so that a write ends in EFBIG."""

    points, slack = 20, 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def with_room_for(self, size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Mounted:
    """A file system in memory with a given number of free bytes."""

    points, slack = 10, PAGE  # the last page of an old file may have room

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def with_room_for(self, size: int) -> Iterator[None]:
        ballast = self.folder / ".." / "ballast"
        free = os.statvfs(self.folder).f_bavail
        with ballast.open("wb") as file:
            file.write(bytes(max(0, free - size // PAGE) * PAGE))
        try:
            yield
        finally:
            ballast.unlink()


@contextmanager
def mounted(folder: Path, size: int = PAGES * PAGE) -> Iterator[Mounted]:
    """Mount a file system in memory, or skip the test where that is impossible."""
    disk = folder / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (disk / "files").mkdir()
        yield Mounted(disk / "files")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of every file below a folder."""
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }
