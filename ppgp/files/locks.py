"""Locks that let one process at a time work on a file.

A lock is a file beside the locked one. It names the process and is released when the process ends.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import StorageError
from .output_paths import beside, sweep, target_of

fcntl: Any
try:
    import fcntl
except ImportError:  # a system without it has no locks, but files are still replaced as a whole
    fcntl = None

PAUSE = 0.005  # seconds between two attempts at a lock
READS = 20  # of the owner's name in a lock, which it may not have written yet
_held: set[int] = set()  # descriptors of the locks of this process


@contextmanager
def locked(path: str | Path | None, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file inside the block.

    Where a lock is impossible (a read-only folder), none is held.

    Args:
        path: The file; None locks nothing.
        patience: Seconds to wait for another run that holds the lock.

    Raises:
        StorageError: If another run holds the lock; the message has the number of its process.
    """
    if path is None:
        yield
        return
    lock, descriptor = _taken(Path(path), time.monotonic() + patience)
    try:
        yield
    finally:
        if descriptor in _held:  # false in a forked child, which has closed its copy
            _held.discard(descriptor)
            with suppress(OSError):
                lock.unlink()
            os.close(descriptor)


def _taken(path: Path, deadline: float) -> tuple[Path, int]:
    """Return the lock and its descriptor, which is -1 where a lock is impossible."""
    lock = path
    try:
        target = target_of(path)
        lock = beside(target, "lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        while fcntl is not None:
            descriptor = _attempt(path, lock, deadline)
            if descriptor is not None:
                _held.add(descriptor)
                with suppress(OSError):  # on a full disk the lock does not name its owner
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"{_name()}\n".encode())
                sweep(target)
                return lock, descriptor
    except OSError:
        pass
    return lock, -1


def _attempt(path: Path, lock: Path, deadline: float) -> int | None:
    """Return the descriptor of the lock once it is acquired; None to try again.

    Another attempt is due where the last owner has removed the lock, and before the deadline.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = os.stat(lock)
    except BlockingIOError:
        if time.monotonic() < deadline:
            os.close(descriptor)
            time.sleep(PAUSE)
            return None
        owner = _owner(descriptor)
        os.close(descriptor)
        do = "wait for it to end, or choose another path"
        raise StorageError(
            "a file that no other run uses", f"{path}, which {owner} uses", do
        ) from None
    except FileNotFoundError:  # the last owner removed the file after it was opened
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    if there.st_ino == os.fstat(descriptor).st_ino:
        return descriptor
    os.close(descriptor)  # the last owner removed the file, and another process made a new one
    return None


def _owner(descriptor: int) -> str:
    """Return a description of the process that holds a lock."""
    for _ in range(READS):
        name = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        if name == _name():
            return f"another fit of this process ({os.getpid()})"
        if name:
            return name
        time.sleep(0.01)
    return "another process"


def _name() -> str:
    """Return how this process names itself in its locks."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _after_fork() -> None:
    """Close the copies of the parent's locks in a forked child.

    The parent keeps its locks, and they are released when the parent ends.
    """
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
