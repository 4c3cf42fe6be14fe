"""Child processes: none outlives its parent, and none hears Ctrl-C but through its parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

__all__ = ["Spawned", "end_with_parent", "killed", "unheard"]

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_parent() -> None:
    """Called in a child of ``multiprocessing``: it is killed once its parent has ended, however that ended.

    By the kernel on Linux; elsewhere by a thread that waits for the parent.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if _killed_by_the_kernel():
        if os.getppid() != parent.pid:  # it had ended before the kernel was asked
            os._exit(1)
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _killed_by_the_kernel() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


@contextmanager
def unheard() -> Iterator[None]:
    """Processes that are started inside do not receive Ctrl-C, which a terminal sends to every process of its group."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def killed(processes: list[BaseProcess]) -> None:
    """End them now, and wait until they are gone."""
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.kill()
    for process in started:
        process.join()


class Spawned(SpawnContext):
    """The context of new interpreters, which knows those that it has started."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[BaseProcess] = []

    def Process(self, *args: Any, **options: Any) -> BaseProcess:  # type: ignore[override]
        """As ``multiprocessing`` names it."""
        process = super().Process(*args, **options)
        self.processes.append(process)
        return process
