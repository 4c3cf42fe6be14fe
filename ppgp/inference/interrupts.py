"""Ctrl-C in fits: the first ends a fit, and a second one soon after it ends the caller's loop."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short

__all__ = ["TWICE", "raise_if_interrupted", "second_goes_to_the_caller"]

TOGETHER = 2.0  # seconds within which a second Ctrl-C is the caller's
#: Seconds within which two signals are one Ctrl-C. A terminal signals every process of its group,
#: and a launcher such as torchrun passes on its own signal as well.
SAME_PRESS = 0.05
TWICE = "Ctrl-C twice within two seconds ends a loop of fits"

_last = -math.inf  # when the last Ctrl-C came during a fit, by the monotonic clock


def raise_if_interrupted(posterior: Posterior) -> Posterior:
    """Return the posterior itself, for a caller that goes on to another fit.

    Raises:
        KeyboardInterrupt: If Ctrl-C ended the fit early.
    """
    if cut_short(posterior.stats):
        raise KeyboardInterrupt("a fit was stopped before its end")
    return posterior


class _Handler:
    """A handler of SIGINT that notes when the signal comes, and then calls the handler before it.

    Attributes:
        before: The handler before it.
        again: Whether a Ctrl-C came within two seconds of the one before it.
    """

    def __init__(self, before: Callable[[int, Any], Any]) -> None:
        self.before = before
        self.again = False

    def __call__(self, number: int, frame: Any) -> None:
        global _last
        now = monotonic()
        since = now - _last
        if since >= SAME_PRESS:
            self.again = self.again or since < TOGETHER
            _last = now
        self.before(number, frame)


@contextmanager
def second_goes_to_the_caller() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if Ctrl-C came within two seconds of the one before it.

    The one before it may have come during this block or during an earlier one, such as the last
    fit of a loop. What the block does at Ctrl-C is the same for both: it saves its checkpoint, and
    ends its processes. A block inside another one adds nothing. Threads other than the main one
    receive no signals, and a process that ignores Ctrl-C still does.

    Raises:
        KeyboardInterrupt: If such a Ctrl-C came, and the block did not raise it.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not callable(before) or isinstance(before, _Handler):
        yield
        return
    handler = _Handler(before)
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handler:
            signal.signal(signal.SIGINT, before)
    if handler.again:
        raise KeyboardInterrupt("a second Ctrl-C came within two seconds of the first")
