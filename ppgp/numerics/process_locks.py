"""One at a time: code that uses the state that Pyro, torch and Python keep once per process.

Pyro's stack of handlers, its parameter store, torch's stream of random numbers and Python's warning filters belong to the
process. Two threads that use them at once read and restore each other's. So every use takes a turn, and a second thread waits.

There are two turns. A fit holds the first, for handlers, parameters and filters, from start to end. Whoever draws random numbers
holds the second, for the stream, while it draws, so that a draw from a prediction need not wait for a fit. Who takes both takes
the stream second, so that no two wait for each other.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Turn:
    """One re-entrant lock. The thread that holds it may let threads that work for it, while it waits for them, take part."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.among_helpers = threading.RLock()
        self.owner: int | None = None
        self.depth = self.number = 0  # how often the owner has entered; the number of the turn
        self.own = threading.local()
        self.when_abandoned: list[Callable[[], None]] = []

    def enter(self) -> Callable[[], None]:
        """Wait for the turn; returns what ends it."""
        if self.depth and getattr(self.own, "helps_in", None) == self.number:
            lock = self.among_helpers
            lock.acquire()
            return lock.release
        self.lock.acquire()
        self.depth += 1
        if self.depth == 1:
            self.owner = threading.get_ident()
            self.number += 1
        return self.leave

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Inside, this thread has the turn."""
        leave = self.enter()
        try:
            yield
        finally:
            leave()

    def leave(self) -> None:
        self.depth -= 1
        if not self.depth:
            self.owner = None
        self.lock.release()

    def after_fork(self) -> None:
        """In a forked child there is one thread: it keeps a turn of its own, and that of another thread is over."""
        self.among_helpers = threading.RLock()
        if self.owner != threading.get_ident():
            abandoned, self.owner, self.depth = self.owner is not None, None, 0
            self.lock = threading.RLock()
            for clean in self.when_abandoned if abandoned else ():
                clean()


_ALL, _STREAM = _Turn(), _Turn()
Turns = tuple[int | None, int | None]

if hasattr(os, "register_at_fork"):
    for _each in (_ALL, _STREAM):
        os.register_at_fork(after_in_child=_each.after_fork)


def when_abandoned(clean: Callable[[], None]) -> None:
    """Call ``clean`` in a forked child where another thread of the parent was inside ``one_at_a_time``: it never leaves there."""
    _ALL.when_abandoned.append(clean)


def one_at_a_time() -> AbstractContextManager[None]:
    """Inside, no other thread is inside. Calls nest."""
    return _ALL.taken()


def one_on_the_stream() -> AbstractContextManager[None]:
    """Inside, no other thread uses torch's stream of random numbers. Nothing inside may ask for ``one_at_a_time`` first."""
    return _STREAM.taken()


def in_turn(function: F) -> F:
    """A decorator: calls of the function, and of all that are decorated so, wait for one another."""
    return _ALL.taken()(function)


def turns_of_this_thread() -> Turns:
    """The numbers of the turns that this thread has; None where it has none."""
    here = threading.get_ident()
    return (
        _ALL.number if _ALL.owner == here else None,
        _STREAM.number if _STREAM.owner == here else None,
    )


def help_in(turns: Turns) -> None:
    """This thread works for the thread that has those turns, and which waits for it: until they are over it need not wait."""
    _ALL.own.helps_in, _STREAM.own.helps_in = turns


@contextmanager
def silenced(category: type[Warning] = Warning) -> Iterator[None]:
    """No warnings of a category inside, and the caller's filters as they were afterwards, whatever other threads do."""
    with one_at_a_time(), warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield
