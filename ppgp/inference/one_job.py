"""One job of a sweep, as it runs in a worker: on one thread, from the caller's params."""

from __future__ import annotations

import os
import threading
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyro

from ..display.user_warnings import warn
from ..runtime.process_locks import Turns, help_in, one_at_a_time, turns_of_this_thread
from ..runtime.threads import at_most, blas_on_one_thread

__all__ = ["Failure", "Home", "Outcome", "in_a_worker", "on_one_thread", "run_job"]

_PROCESS = uuid.uuid4().hex  # forked children share it, and differ in their process ids
#: warnings about how code is written, which a user of the library cannot act on
OF_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning)


class _Here(threading.local):
    """What this thread is doing; ``depth`` counts the jobs around it that a worker was given."""

    depth = 0


_HERE = _Here()


def in_a_worker() -> bool:
    """Return whether this thread runs a job of a sweep that workers share."""
    return _HERE.depth > 0


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Run on one thread inside the block, so that results do not depend on who runs it."""
    with at_most(1), blas_on_one_thread():
        yield


class Failure(Exception):
    """The traceback of an error in a worker; it is the cause of that error at the caller."""


@dataclass(frozen=True)
class Home:
    """Where a sweep was called.

    Attributes:
        process: Names the process.
        turns: The locks that the caller holds while it waits.
        params: Pyro's parameter store there; None if it is empty.
    """

    process: tuple[str, int]
    turns: Turns
    params: Any

    @classmethod
    def of_this_thread(cls) -> Home:
        """Return where this thread is."""
        store = pyro.get_param_store()
        params = store.get_state() if len(store) else None
        return cls((_PROCESS, os.getpid()), turns_of_this_thread(), params)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run a job inside the block as it would run at home."""
        with ExitStack() as stack:
            _HERE.depth += 1
            stack.callback(_leave)
            if self.process == (_PROCESS, os.getpid()):
                help_in(self.turns)  # a thread beside the caller, which waits
                stack.callback(help_in, (None, None))
            elif self.params is not None:
                stack.enter_context(one_at_a_time())
                stack.enter_context(pyro.get_param_store().scope(self.params))
            stack.enter_context(on_one_thread())
            yield


def _leave() -> None:
    _HERE.depth -= 1


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        value: What it returned.
        error: What it raised; None if it ended well.
        trace: The traceback of the error.
        warned: (category, message) of its warnings.
    """

    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    warned: list[tuple[type[Warning], str]] = field(default_factory=list)

    def opened(self) -> Any:
        """Issue the warnings here, and return the value or raise the error."""
        for category, message in self.warned:
            warn(message, category)
        if self.error is not None:
            raise self.error from Failure(f"in a worker:\n{self.trace}")
        return self.value


def run_job(work: Callable[[Any], Any], number: int, job: Any, home: Home) -> tuple[int, Outcome]:
    """Run one job in a worker; return its number and how it ended.

    A thread at a time does so in each process: the fits inside take turns in any case, and the
    filters of warnings belong to the process.
    """
    with home.entered(), one_at_a_time(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = Outcome(work(job))
        except BaseException as error:  # KeyboardInterrupt too: an interrupted fit raises it
            outcome = Outcome(error=_transportable(error), trace=traceback.format_exc())
    for each in caught:
        if not issubclass(each.category, OF_DEVELOPERS):
            outcome.warned.append((each.category, str(each.message)))
    return number, outcome


def _transportable(error: BaseException) -> BaseException:
    """Return the error, or one with its words if it cannot be sent between processes."""
    try:
        deepcopy(error)  # it goes by the same parts as pickling
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
