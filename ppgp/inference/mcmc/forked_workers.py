"""Chains in forked processes: where a gradient takes microseconds, threads would wait for one another's interpreter lock."""

from __future__ import annotations

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
from ...numerics.process_locks import silenced
from ...numerics.processes import end_with_parent, kill_all, without_interrupts
from ...numerics.threads import available_cores

PATIENCE = 5.0  # seconds that interrupted children have to hand over their draws

Work = Callable[[int, Callable[[int, int], None]], Any]


def can_fork() -> bool:
    """Whether forked children are safe and of use: on Linux, in a main process that holds neither CUDA nor JAX's threads."""
    return (
        sys.platform == "linux"
        and available_cores() > 1
        and multiprocessing.parent_process() is None
        and threading.current_thread() is threading.main_thread()
        and not torch.cuda.is_initialized()
        and "jax" not in sys.modules
    )


class WorkerPool:
    """Up to ``cores`` children at a time, one a job; ``work(job, report)`` runs in the child, ``heard(job, figures)`` here."""

    def __init__(
        self, work: Work, cores: int, heard: Callable[[int, tuple[int, int]], None]
    ) -> None:
        self.work, self.cores, self.heard = work, cores, heard
        self._running: dict[Connection, tuple[int, Any]] = {}

    def results(self, jobs: list[int]) -> Iterator[tuple[int, Any]]:
        """(job, what its work returned), as they finish.

        Raises:
            Exception: whatever the work raised.
            RuntimeError: if a child died.
        """
        waiting = list(jobs)
        while waiting or self._running:
            while waiting and len(self._running) < self.cores:
                self._start(waiting.pop(0))
            for connection in wait(list(self._running)):
                found = self._receive(connection)  # type: ignore[arg-type]
                if found is not None:
                    yield found

    def interrupt(self) -> Iterator[tuple[int, Any]]:
        """Ctrl-C for the children; what they had."""
        for _, process in self._running.values():
            os.kill(process.pid, signal.SIGINT)
        deadline = time.monotonic() + PATIENCE
        while self._running:
            ready = wait(list(self._running), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                return
            for connection in ready:
                try:
                    found = self._receive(connection)  # type: ignore[arg-type]
                except Exception:  # what went wrong after Ctrl-C no longer matters
                    continue
                if found is not None and found[1] is not None:
                    yield found

    def close(self) -> None:
        """No child outlives the run."""
        kill_all([process for _, process in self._running.values()])
        for connection in self._running:
            connection.close()
        self._running.clear()

    def _start(self, job: int) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        inherited = [here, *self._running]
        process = context.Process(
            target=_child, args=(self.work, job, there, inherited), daemon=True
        )
        with (
            silenced(DeprecationWarning),
            without_interrupts(),
        ):  # of forking beside threads: the children use none of them
            process.start()
        there.close()
        self._running[cast(Connection, here)] = job, process

    def _receive(self, connection: Connection) -> tuple[int, Any] | None:
        job, process = self._running[connection]
        kind: str
        value: Any
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):  # OSError: it ended halfway through a message
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


def _child(work: Work, job: int, connection: Connection, inherited: list[Connection]) -> None:
    """``inherited``: the reading ends of pipes that came with the fork. While a process holds that of its own pipe, a write to
    it waits for ever once the parent has ended."""
    for other in inherited:
        other.close()
    end_with_parent()
    _interrupted_once()
    torch.set_num_threads(1)

    def report(*figures: int) -> None:
        try:
            connection.send(("progress", figures))
        except OSError:  # nobody reads any more
            os._exit(1)

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        answer = ("done", work(job, report))
        _deaf()
    except KeyboardInterrupt:
        answer = ("done", None)
    except BaseException as error:
        answer = ("failed", _portable(error))
    with suppress(BrokenPipeError):
        connection.send(answer)
    connection.close()


def _interrupted_once() -> None:
    """The first Ctrl-C is raised: a terminal sends one to every process of its group, and the parent another."""

    def once(*_: Any) -> None:
        _deaf()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, once)
    if callable(signal.getsignal(signal.SIGTERM)):  # the parent takes it for Ctrl-C
        signal.signal(signal.SIGTERM, once)


def _deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _portable(error: BaseException) -> BaseException:
    """The error itself where it can pass a pipe: this library's own, and those that are made of their message."""
    plain = type(error).__module__ == "builtins" and all(
        isinstance(a, str | int | float) for a in error.args
    )
    return (
        error
        if isinstance(error, PpgpError) or plain
        else RuntimeError(f"{type(error).__name__}: {error}")
    )
