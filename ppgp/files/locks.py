"""One process at a time works on a file: a lock beside it, which names the process and ends with it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import StorageError
from .output_paths import beside, sweep, target_of

try:
    import fcntl
except (
    ImportError
):  # a system without it: files are replaced whole there too, but nobody is told of the other
    fcntl = None  # type: ignore[assignment]

LOOKS = 20  # at the name in a lock that was taken a moment ago
_held: set[int] = set()  # descriptors of the locks of this process


@contextmanager
def locked(path: str | Path | None) -> Iterator[None]:
    """Hold the lock of a file; None: nothing is locked. Where no lock can be had (a read-only folder), there is none.

    Raises:
        StorageError: if another run holds it, with the number of its process.
    """
    if path is None:
        yield
        return
    lock, descriptor = _taken(Path(path))
    try:
        yield
    finally:
        if descriptor in _held:  # not in a forked child, whose copy is closed
            _held.discard(descriptor)
            with suppress(OSError):
                lock.unlink()
            os.close(descriptor)


def _taken(path: Path) -> tuple[Path, int]:
    """The lock and its descriptor, -1 where there is none."""
    lock = path
    try:
        target = target_of(path)
        lock = beside(target, "lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        while fcntl is not None:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                there = os.stat(lock)
            except BlockingIOError:
                owner = _owner(descriptor)
                os.close(descriptor)
                do = "wait for it to end, or choose another path"
                raise StorageError(
                    "a file that no other run uses", f"{path}, which {owner} uses", do
                ) from None
            except FileNotFoundError:  # its owner ended between the two lines
                os.close(descriptor)
                continue
            except OSError:
                os.close(descriptor)
                raise
            if there.st_ino == os.fstat(descriptor).st_ino:
                _held.add(descriptor)
                with suppress(OSError):  # a full disk: a lock without a name
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"{_name()}\n".encode())
                sweep(target)
                return lock, descriptor
            os.close(descriptor)
    except OSError:
        pass
    return lock, -1


def _owner(descriptor: int) -> str:
    for _ in range(LOOKS):
        name = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        if name == _name():
            return f"another fit of this process ({os.getpid()})"
        if name:
            return name
        time.sleep(0.01)
    return "another process"


def _name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _let_go() -> None:
    """In a forked child: closing a copy leaves the lock to the parent, and the parent's end is its end."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
