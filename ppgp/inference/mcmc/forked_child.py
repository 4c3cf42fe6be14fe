"""One job in a forked child: its progress, its result, its errors and Ctrl-C."""

from __future__ import annotations

import builtins
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from ...errors import PpgpError
from ...runtime.processes import end_with_parent

Work = Callable[[int, Callable[[int, int], None]], Any]


def run_job(work: Work, job: int, connection: Connection, inherited: list[Connection]) -> None:
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
