"""Chains in forked processes.

Where a gradient takes microseconds, threads would wait for one another's interpreter lock.
"""

from __future__ import annotations

import builtins
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import torch

from ...errors import PpgpError
from ...runtime.process_locks import silenced
from ...runtime.processes import end_with_parent, kill_all, without_interrupts
from ...runtime.threads import available_cores

PATIENCE = 5.0  # seconds that interrupted children have to send their draws


def can_fork() -> bool:
    """Whether forked children are safe and useful.

    This needs Linux, several cores, and the main thread of a main process that holds neither CUDA
    nor the threads of JAX.
    """
    return (
        sys.platform == "linux"
        and available_cores() > 1
        and multiprocessing.parent_process() is None
        and threading.current_thread() is threading.main_thread()
        and not torch.cuda.is_initialized()
        and "jax" not in sys.modules
    )


class WorkerPool:
    """Forked children, one per job, up to ``cores`` of them at a time.

    Args:
        work: ``work(job, report)`` runs in the child; it may call ``report(*numbers)``.
        cores: The largest number of children at a time.
        heard: ``heard(job, numbers)`` runs in this process after each report.
    """

    def __init__(
        self, work: Work, cores: int, heard: Callable[[int, tuple[int, int]], None]
    ) -> None:
        self.work, self.cores, self.heard = work, cores, heard
        self._running: dict[Connection, tuple[int, Any]] = {}

    def results(self, jobs: list[int]) -> Iterator[tuple[int, Any]]:
        """Yield pairs of a job and the result of its work, as they finish.

        Raises:
            Exception: The error that the work raised.
            RuntimeError: If a child died.
        """
        waiting = list(jobs)
        while waiting or self._running:
            while waiting and len(self._running) < self.cores:
                self._start(waiting.pop(0))
            for connection in wait(list(self._running)):
                result = self._receive(cast(Connection, connection))
                if result is not None:
                    yield result

    def interrupt(self) -> Iterator[tuple[int, Any]]:
        """Interrupt the children; yield pairs of a job and what its work had so far."""
        for _, process in self._running.values():
            os.kill(process.pid, signal.SIGINT)
        deadline = time.monotonic() + PATIENCE
        while self._running:
            ready = wait(list(self._running), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                return
            for connection in ready:
                try:
                    result = self._receive(cast(Connection, connection))
                except Exception:  # an error after Ctrl-C no longer matters
                    continue
                if result is not None and result[1] is not None:
                    yield result

    def close(self) -> None:
        """End all children."""
        kill_all([process for _, process in self._running.values()])
        for connection in self._running:
            connection.close()
        self._running.clear()

    def _start(self, job: int) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        inherited = [here, *self._running]
        process = context.Process(
            target=_run_job, args=(self.work, job, there, inherited), daemon=True
        )
        # the warning is about forking beside threads, of which the children use none
        with silenced(DeprecationWarning), without_interrupts():
            process.start()
        there.close()
        self._running[cast(Connection, here)] = job, process

    def _receive(self, connection: Connection) -> tuple[int, Any] | None:
        """Read one message; return the job and its result if the message is one."""
        job, process = self._running[connection]
        kind: str
        value: Any
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):  # OSError: the child ended halfway through a message
            kind, value = "failed", RuntimeError(f"the process of chain {job} died")
        if kind == "progress":
            self.heard(job, value)
            return None
        del self._running[connection]
        process.join()
        connection.close()
        if kind == "failed":
            raise value
        return job, value


Work = Callable[[int, Callable[[int, int], None]], Any]


def _run_job(work: Work, job: int, connection: Connection, inherited: list[Connection]) -> None:
    """Do one job in a child, and send its result.

    ``inherited`` are the reading ends of pipes that came with the fork. While a process holds the
    reading end of its own pipe, a write to that pipe waits for ever once the parent has ended.
    """
    for other in inherited:
        other.close()
    end_with_parent()
    _interrupted_once()
    torch.set_num_threads(1)

    def report(*numbers: int) -> None:
        try:
            connection.send(("progress", numbers))
        except OSError:  # the parent has ended
            os._exit(1)

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        answer = ("done", work(job, report))
        _ignore_interrupts()
    except KeyboardInterrupt:
        answer = ("done", None)
    except BaseException as error:
        answer = ("failed", _portable(error))
    with suppress(BrokenPipeError):
        connection.send(answer)
    connection.close()


def _interrupted_once() -> None:
    """Raise KeyboardInterrupt at the first Ctrl-C only.

    A terminal sends one to every process of its group, and the parent sends another.
    """

    def once(*_: Any) -> None:
        _ignore_interrupts()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, once)
    if callable(signal.getsignal(signal.SIGTERM)):  # the parent treats it like Ctrl-C
        signal.signal(signal.SIGTERM, once)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _portable(error: BaseException) -> BaseException:
    """Return the error itself if it can be pickled, else a RuntimeError with its message.

    This library's own errors can be pickled, and so can built-in ones with plain arguments.
    """
    kind = type(error)
    builtin = getattr(builtins, kind.__name__, None) is kind
    plain = builtin and all(isinstance(a, str | int | float) for a in error.args)
    if isinstance(error, PpgpError) or plain:
        return error
    return RuntimeError(f"{kind.__name__}: {error}")
