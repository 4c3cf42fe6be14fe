"""Ctrl-C and SIGTERM end the command line in one way."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["INTERRUPTED", "one_way_out"]

INTERRUPTED = 128 + int(signal.SIGINT)  # exit status
HANDLED = ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))


@contextmanager
def one_way_out() -> Iterator[None]:
    """Both signals are a KeyboardInterrupt inside; afterwards the cursor is shown, and the exit status is 128 and the number of
    the first signal, whatever was made of it. A signal that the caller ignores stays ignored."""
    came: list[int] = []

    def raised(number: int, _: Any) -> None:
        came.append(number)
        raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()
    own = [(each, usual) for each, usual in HANDLED if here and signal.getsignal(each) == usual]
    for each, _ in own:
        signal.signal(each, raised)
    try:
        yield
    finally:
        for each, usual in own:
            signal.signal(each, usual)
        if came:
            _show_cursor()
            with suppress(OSError):
                print("ppgp: stopped", file=sys.stderr, flush=True)
            raise SystemExit(128 + came[0])


def _show_cursor() -> None:
    """A progress bar that a signal met while it was drawn first or last may have left it hidden."""
    if "rich" in sys.modules:
        from rich import get_console

        with suppress(OSError):
            get_console().show_cursor(True)
