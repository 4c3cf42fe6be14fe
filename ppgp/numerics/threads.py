"""How many threads an operation deserves: the one place that decides.

Two threads pay from a size on; below it they cost more than they save. The number depends on the size
of the problem, the cores that this process may use (affinity mask and cgroup quota) and the caller's
setting, which is a ceiling. It never depends on the load, so that results do not.

Where threads wait for one another asleep, waking them costs as much as a second thread saves up to
2,000 rows of a Gaussian process. Where they wait in a busy loop (see ``openmp``), two pay earlier, but are
many times slower than one beside other processes: one thread is the default there, unless the user has
asked for that way of waiting.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from .libraries import imported
from .openmp import set_own_threads, wait_policy

#: multiplications of one evaluation from which a second thread pays, by the way that threads wait: those of a
#: Gaussian process of 2,000 rows, and of 500
PAYS_FROM = {"passive": 2000.0**3, "active": 500.0**3}
#: multiplications that an elementwise function of one number counts as
ELEMENT = 100.0

F = TypeVar("F", bound=Callable[..., Any])


@functools.lru_cache(maxsize=1)
def available_cores() -> int:
    """Cores that this process may use: the affinity mask and the cgroup quota, whichever is less."""
    return max(1, int(imported("joblib").cpu_count()))


def numbers_in(arguments: Mapping[str, Any]) -> int:
    """How many numbers the tensors among a program's arguments hold."""
    return sum(value.numel() for value in arguments.values() if isinstance(value, torch.Tensor))


def threads_for(work: float) -> int:
    """Threads for an operation of ``work`` multiplications, before the caller's ceiling."""
    least = PAYS_FROM.get(wait_policy() or "", math.inf)
    return 1 if _LIMITER.forked or work < least else available_cores()


class _Limiter:
    """torch on a number of threads while any thread of Python asks for it.

    ``predict`` may run in several threads at once. The first that enters reads the caller's setting;
    every one that leaves sets it again, so that the order of leaving does not matter. Inside one
    thread of Python requests nest: the innermost decides, under the ceiling of those around it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.before = 1
        self.own = threading.local()
        self.forked = False

    def _stack(self) -> list[tuple[int, int]]:
        """(threads, ceiling) of each request of this thread of Python, the outermost first."""
        if not hasattr(self.own, "stack"):
            self.own.stack = []
        return self.own.stack

    def enter(self, wanted: int, hold: bool) -> None:
        """``hold``: requests inside this one may not ask for more."""
        stack = self._stack()
        with self.lock:
            if not stack:
                current = (
                    torch.get_num_threads()
                )  # asked in any case: a thread's first question sets its number
                if not self.inside:
                    self.before = current
                self.inside += 1
            ceiling = stack[-1][1] if stack else self.before
            number = min(wanted, ceiling)
            stack.append((number, number if hold else ceiling))
            torch.set_num_threads(number)

    def leave(self) -> None:
        stack = self._stack()
        with self.lock:
            stack.pop()
            if not stack:
                self.inside -= 1
            # torch's BLAS has one setting for all threads: those still inside would go on with that of this one
            if stack or not self.inside or not set_own_threads(self.before):
                torch.set_num_threads(stack[-1][0] if stack else self.before)

    def after_fork(self) -> None:
        """One thread in a forked child: GNU's OpenMP has lost the others, and would wait for them for ever."""
        self.lock = threading.Lock()  # another thread of the parent may have held it
        self.forked = True
        stack = self._stack()
        stack[:] = [(1, 1)] * len(stack)
        self.inside, self.before = int(bool(stack)), 1
        torch.set_num_threads(1)


_LIMITER = _Limiter()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LIMITER.after_fork)


@functools.lru_cache(maxsize=1)
def _libraries() -> Any:
    """The BLAS of NumPy and of SciPy, whose threads spin after each product; finding them takes 25 ms."""
    import scipy.linalg  # noqa: F401  (loads its BLAS, so that it is found)

    found: Any = imported("threadpoolctl").ThreadpoolController()
    paths = [lib.filepath for lib in found.lib_controllers]
    theirs = [path for path in paths if "numpy" in path or "scipy" in path]
    return found.select(filepath=theirs) if theirs else None


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """NumPy's and SciPy's own BLAS on one thread, torch's as before.

    After each small product the other threads of OpenBLAS spin for milliseconds on the cores that
    torch is about to need, which doubles the time of a search.
    """
    libraries = _libraries()
    if libraries is None:
        yield
        return
    with libraries.limit(limits=1):
        yield


@contextmanager
def limited(work: float) -> Iterator[None]:
    """Run an operation of ``work`` multiplications on the threads that it deserves.

    The caller's setting is a ceiling, and returns afterwards.
    """
    _LIMITER.enter(threads_for(work), hold=False)
    try:
        yield
    finally:
        _LIMITER.leave()


@contextmanager
def at_most(number: int) -> Iterator[None]:
    """Run on at most ``number`` threads, whatever the operations inside deserve."""
    _LIMITER.enter(number, hold=True)
    try:
        yield
    finally:
        _LIMITER.leave()


def limited_by(work: Callable[..., float]) -> Callable[[F], F]:
    """A decorator: the function runs on the threads that ``work(*its arguments)`` multiplications deserve."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with limited(work(*args, **kwargs)):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate
