"""Ctrl-C and SIGTERM end the command line with the exit status that shells expect."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["INTERRUPTED", "exit_on_signals", "in_words_of"]

INTERRUPTED = 128 + int(signal.SIGINT)  # exit status after Ctrl-C
ADVICE = "; Ctrl-C twice within two seconds ends a loop of fits"  # which warnings end with
RETRY_SECONDS = 0.01  # until a signal is sent again that came inside a callback of a weak reference
DEFAULT_HANDLERS = (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
)


def in_words_of(received: Sequence[int], sentence: str) -> str:
    """Return a message on a fit that was stopped, which names SIGTERM where that came first.

    Args:
        received: The numbers of the signals, in order.
        sentence: The message, which names Ctrl-C.
    """
    if signal.SIGTERM not in received[:1]:
        return sentence
    return sentence.replace(ADVICE, "").replace("Ctrl-C", "SIGTERM")


@contextmanager
def exit_on_signals() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt inside on either signal, and exit with its status at the end.

    At the end the cursor is shown again and the exit status is 128 plus the number of the first
    signal, whether or not the work inside caught the KeyboardInterrupt. A signal that the caller
    ignores stays ignored.

    Yields:
        The numbers of the signals that have come, in order.

    Raises:
        SystemExit: If a signal came.
    """
    received: list[int] = []
    ended = threading.Event()
    said = ""

    def interrupt(number: int, _: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()
    replaced = [
        (number, default)
        for number, default in DEFAULT_HANDLERS
        if in_main_thread and signal.getsignal(number) == default
    ]
    report = sys.unraisablehook

    def send_again(lost: Any) -> None:
        # Python drops what a callback of a weak reference raises, KeyboardInterrupt included
        if not (received and issubclass(lost.exc_type, KeyboardInterrupt)):
            report(lost)
            return
        timer = threading.Timer(RETRY_SECONDS, _send, (received[-1], ended))
        timer.daemon = True
        timer.start()

    for number, _ in replaced:
        signal.signal(number, interrupt)
    sys.unraisablehook = send_again
    try:
        yield received
    except KeyboardInterrupt as stopped:
        said = str(stopped)
        raise
    finally:
        ended.set()
        sys.unraisablehook = report
        for number, default in replaced:
            signal.signal(number, default)
        if received:
            _show_cursor()
            ended_by = in_words_of(received, "stopped by Ctrl-C")
            with suppress(OSError):
                print(f"ppgp: {said or ended_by}", file=sys.stderr, flush=True)
            raise SystemExit(128 + received[0])


def _send(number: int, ended: threading.Event) -> None:
    """Send this process a signal, unless the block that handles it has ended."""
    if not ended.is_set():
        os.kill(os.getpid(), number)


def _show_cursor() -> None:
    """Show the cursor, which an interrupted progress bar may have left hidden."""
    if "rich" in sys.modules:
        from rich.console import Console

        with suppress(OSError):
            Console(stderr=True).show_cursor(True)
