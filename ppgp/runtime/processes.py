"""Child processes that end with their parent and receive Ctrl-C only through it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

__all__ = ["Spawned", "begin_worker", "end_with_parent", "kill_all", "without_interrupts"]

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
LOOK_SECONDS = 0.5  # between two looks of a worker for its parent


def end_with_parent() -> None:
    """Make a child of ``multiprocessing`` end once its parent has ended, however it ended.

    It is called in the child. On Linux the kernel kills the child; elsewhere a thread waits for the
    parent.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if _killed_by_the_kernel():
        if os.getppid() != parent.pid:  # the parent ended before the request to the kernel
            os._exit(1)
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def begin_worker(parent: int) -> None:
    """Make a worker of loky deaf to Ctrl-C, and end it once its parent has ended.

    It is called in the worker. The kernel would kill it as soon as the thread that started it ends,
    and loky starts workers from several threads, so that a thread looks for the parent instead.

    Args:
        parent: The process id of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _killed_by_the_kernel() -> bool:
    """Ask the kernel to kill this process when its parent ends, and return whether it will."""
    if sys.platform != "linux":
        return False
    try:
        return ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Start processes inside the block that do not receive Ctrl-C.

    A terminal sends Ctrl-C to every process of its group.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def kill_all(processes: list[BaseProcess]) -> None:
    """Kill the processes and wait until they have ended."""
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.kill()
    for process in started:
        process.join()


class Spawned(SpawnContext):
    """A ``multiprocessing`` context of new interpreters that records the processes it has started.

    Attributes:
        processes: The processes started so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[BaseProcess] = []

    def Process(self, *args: Any, **options: Any) -> Any:  # type: ignore[override] # a class there
        """Return a new process, as ``multiprocessing`` does."""
        process = super().Process(*args, **options)
        self.processes.append(process)
        return process
