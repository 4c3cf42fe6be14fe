"""Chains in forked processes: where a gradient takes microseconds, threads would wait for one another's interpreter lock."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import torch

from ...errors import PpgpError
from ...numerics.threads import available_cores
from ...numerics.turns import silenced

PATIENCE = 5.0  # seconds that an interrupted child has to hand over its draws

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


class Crew:
    """Up to ``cores`` children at a time, one a job; ``work(job, report)`` runs in the child, ``heard(job, figures)`` here."""

    def __init__(self, work: Work, cores: int, heard: Callable[[int, tuple[int, int]], None]) -> None:
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
        while self._running:
            ready = wait(list(self._running), timeout=PATIENCE)
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
        for connection, (_, process) in self._running.items():
            process.kill()
            process.join()
            connection.close()
        self._running.clear()

    def _start(self, job: int) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(self.work, job, there), daemon=True)
        with silenced(DeprecationWarning):  # of forking beside threads: the children use none of them
            process.start()
        there.close()
        self._running[cast(Connection, here)] = job, process

    def _receive(self, connection: Connection) -> tuple[int, Any] | None:
        job, process = self._running[connection]
        kind: str
        value: Any
        try:
            kind, value = connection.recv()
        except EOFError:
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


def _child(work: Work, job: int, connection: Connection) -> None:
    def once(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C comes here too, beside the parent's
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, once)
    torch.set_num_threads(1)
    try:
        answer = ("done", work(job, lambda *figures: connection.send(("progress", figures))))
    except KeyboardInterrupt:
        answer = ("done", None)
    except BaseException as error:
        answer = ("failed", _portable(error))
    connection.send(answer)
    connection.close()


def _portable(error: BaseException) -> BaseException:
    """The error itself where it can pass a pipe: this library's own, and those that are made of their message."""
    plain = type(error).__module__ == "builtins" and all(isinstance(a, str | int | float) for a in error.args)
    return error if isinstance(error, PpgpError) or plain else RuntimeError(f"{type(error).__name__}: {error}")
