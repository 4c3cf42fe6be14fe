"""Locks around the state that Pyro, torch and Python keep once per process.

Pyro's stack of handlers, its parameter store, torch's random number stream and Python's warning
filters belong to the process. Two threads that use them at once would read and restore each other's
state, so one thread at a time may use them.

There are two locks. A fit holds the first, for handlers, parameters and filters, from start to end.
Code that draws random numbers holds the second, for the stream, while it draws, so that sampling
from a prediction need not wait for a fit. Code that needs both acquires the stream second, which
rules out deadlocks.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _SharedLock:
    """A re-entrant lock whose owner can let helper threads share it while it waits for them.

    Attributes:
        lock: The lock itself.
        among_helpers: The lock that helper threads take in place of it.
        owner: The thread that holds the lock, or None.
        depth: How often the owner has entered.
        number: How often the lock has been acquired from outside; it identifies one acquisition.
        own: The state of each thread; ``helps_in`` is the acquisition that the thread shares.
        when_abandoned: Functions to call in a forked child whose parent's other thread held the
            lock.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.among_helpers = threading.RLock()
        self.owner: int | None = None
        self.depth = self.number = 0
        self.own = threading.local()
        self.when_abandoned: list[Callable[[], None]] = []

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the lock inside the block, or that among helpers in a thread that shares it."""
        shares = self.depth and getattr(self.own, "helps_in", None) == self.number
        lock = self.among_helpers if shares else self.lock
        with lock:
            if shares:
                yield
                return
            self.depth += 1
            if self.depth == 1:
                self.owner = threading.get_ident()
                self.number += 1
            try:
                yield
            finally:
                self.depth -= 1
                if not self.depth:
                    self.owner = None

    def after_fork(self) -> None:
        """Reset the lock in a forked child, which has a single thread.

        The child keeps a lock that its own thread held, and releases one that another thread held.
        """
        self.among_helpers = threading.RLock()
        if self.owner == threading.get_ident():
            return
        abandoned = self.owner is not None
        self.owner = None
        self.depth = 0
        self.lock = threading.RLock()
        if abandoned:
            for clean in self.when_abandoned:
                clean()


_ALL = _SharedLock()
_STREAM = _SharedLock()
Turns = tuple[int | None, int | None]

if hasattr(os, "register_at_fork"):
    for _each in (_ALL, _STREAM):
        os.register_at_fork(after_in_child=_each.after_fork)


def when_abandoned(clean: Callable[[], None]) -> None:
    """Register a function to call in a forked child that would otherwise inherit unfinished state.

    It is called where another thread of the parent was inside ``one_at_a_time``, since that thread
    never leaves the block in the child.
    """
    _ALL.when_abandoned.append(clean)


#: returns a context manager that one thread at a time can be inside; calls nest
one_at_a_time = _ALL.taken
#: returns a context manager inside which no other thread uses torch's random number stream; code
#: inside must not be the first to ask for ``one_at_a_time``
one_on_the_stream = _STREAM.taken


def turns_of_this_thread() -> Turns:
    """Return the acquisitions of both locks that this thread holds; None for a lock it does not."""
    here = threading.get_ident()
    everything = _ALL.number if _ALL.owner == here else None
    stream = _STREAM.number if _STREAM.owner == here else None
    return everything, stream


def help_in(turns: Turns) -> None:
    """Let this thread share the locks that another thread holds while it waits for this one.

    Args:
        turns: ``turns_of_this_thread()`` of the other thread. When it releases the locks, this
            thread has to wait for them again.
    """
    _ALL.own.helps_in, _STREAM.own.helps_in = turns


@contextmanager
def silenced(category: type[Warning] = Warning, message: str = "") -> Iterator[None]:
    """Suppress warnings of a category inside the block, and restore the caller's filters after it.

    It holds ``one_at_a_time``, so that other threads cannot interfere.

    Args:
        category: Of the warnings.
        message: How they begin, a regular expression; "" for all.
    """
    with one_at_a_time(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message, category)
        yield
