"""The number of threads for an operation, and independent pieces of one side by side.

Two threads are faster from a certain size of problem on, and slower below it. The number depends on
the size of the problem, the cores that this process may use (affinity mask and cgroup quota) and
the caller's setting, which is an upper limit. It never depends on the load, so that results do not.

Where threads wait for one another asleep, waking them costs as much as a second thread saves up to
2,000 rows of a Gaussian process. Where they wait in a busy loop (see ``openmp``), two threads pay
earlier, but are many times slower than one beside other processes. One thread is the default there,
unless the user has asked for busy waiting.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch

from .libraries import imported
from .openmp import set_own_threads, wait_policy

#: "passive" or "active", as ``openmp`` found it when the library was imported; "": unknown
WAIT_POLICY = wait_policy() or ""
#: multiplications of one evaluation from which a second thread pays, by how threads wait: those of
#: a Gaussian process of 2,000 rows, and of 500
PAYS_FROM = {"passive": 2000.0**3, "active": 500.0**3}
#: the same for predictions: they are a few products of large blocks, each of which takes so long
#: that waking a sleeping thread costs little
PREDICTIONS_PAY_FROM = {"passive": 1e8, "active": 1e8}
#: multiplications that one evaluation of an elementwise function counts as
ELEMENT = 100.0

#: multiplications of all pieces together, side by side, from which a second thread pays: some 10 ms
PIECES_PAY_FROM = 1e8

F = TypeVar("F", bound=Callable[..., Any])
Piece = TypeVar("Piece")


@functools.lru_cache(maxsize=1)
def available_cores() -> int:
    """Return the cores that this process may use, by affinity mask and cgroup quota."""
    return max(1, int(imported("joblib").cpu_count()))


def numbers_in(arguments: Mapping[str, Any]) -> int:
    """Return how many numbers the tensors among a program's arguments hold."""
    return sum(value.numel() for value in arguments.values() if isinstance(value, torch.Tensor))


def threads_for(work: float, pays_from: Mapping[str, float] = PAYS_FROM) -> int:
    """Return the threads for ``work`` multiplications, before the caller's limit applies.

    Args:
        work: The number of multiplications.
        pays_from: The number from which a second thread pays, by how threads wait.
    """
    least = pays_from.get(WAIT_POLICY, math.inf)
    if _LIMITER.forked or work < least:
        return 1
    return available_cores()


class _Requests(threading.local):
    """The requests of one Python thread.

    Attributes:
        stack: (threads, upper limit) of each request, outermost first.
    """

    def __init__(self) -> None:
        self.stack: list[tuple[int, int]] = []


class _Limiter:
    """The setting of torch's number of threads while at least one Python thread requests a limit.

    ``predict`` may run in several threads at once. The first thread that enters reads the caller's
    setting, and every thread that leaves sets it again, so that the order of leaving does not
    matter. Inside one Python thread requests nest: the innermost decides, below the limits of the
    outer ones.

    Attributes:
        lock: Guards the attributes below.
        inside: The number of Python threads with a request.
        before: The caller's setting.
        own: The requests of each Python thread.
        forked: Whether this process is a forked child.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.before = 1
        self.own = _Requests()
        self.forked = False

    @contextmanager
    def request(self, wanted: int, hold: bool = True) -> Iterator[None]:
        """Hold a request inside the block.

        Args:
            wanted: The number of threads.
            hold: Whether requests inside this one are limited to the same number.
        """
        stack = self.own.stack
        with self.lock:
            if not stack:
                # always called, since the first call in a thread sets its number
                current = torch.get_num_threads()
                if not self.inside:
                    self.before = current
                self.inside += 1
            ceiling = stack[-1][1] if stack else self.before
            number = min(wanted, ceiling)
            if hold:
                ceiling = number
            stack.append((number, ceiling))
            torch.set_num_threads(number)
        try:
            yield
        finally:
            with self.lock:
                stack.pop()
                if not stack:
                    self.inside -= 1
                # torch's BLAS has one setting for all threads: other threads inside would get
                # this one's
                if stack or not self.inside or not set_own_threads(self.before):
                    number = stack[-1][0] if stack else self.before
                    torch.set_num_threads(number)

    def ceiling(self) -> int:
        """Return the upper limit of a request of this Python thread."""
        stack = self.own.stack
        return stack[-1][1] if stack else torch.get_num_threads()

    def after_fork(self) -> None:
        """Use one thread in a forked child.

        GNU's OpenMP has lost the other threads there, and would wait for them for ever.
        """
        self.lock = threading.Lock()  # another thread of the parent may have held it
        self.forked = True
        stack = self.own.stack
        stack[:] = [(1, 1)] * len(stack)
        self.inside, self.before = int(bool(stack)), 1
        torch.set_num_threads(1)


_LIMITER = _Limiter()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LIMITER.after_fork)


@functools.lru_cache(maxsize=1)
def _libraries() -> Any:
    """Return a controller of NumPy's and SciPy's BLAS, or None if they have none of their own.

    Finding the libraries takes 25 ms.
    """
    import scipy.linalg  # noqa: F401  (loads its BLAS)

    controller: Any = imported("threadpoolctl").ThreadpoolController()
    paths = [lib.filepath for lib in controller.lib_controllers]
    theirs = [path for path in paths if "numpy" in path or "scipy" in path]
    if not theirs:
        return None
    return controller.select(filepath=theirs)


class _SingleBLAS:
    """NumPy's and SciPy's BLAS on one thread, while at least one Python thread asks for it.

    Their setting belongs to the process: the first that enters sets it, the last that leaves
    restores it.

    Attributes:
        lock: Guards the attributes below.
        inside: How many blocks are open.
        limit: The open limit, which restores the setting; None where there is none.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.limit: Any = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the setting inside the block; see ``blas_on_one_thread``."""
        libraries = _libraries()
        if libraries is None:
            yield
            return
        with self.lock:
            if not self.inside:
                self.limit = libraries.limit(limits=1)
            self.inside += 1
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if not self.inside:
                    self.limit.restore_original_limits()

    def after_fork(self) -> None:
        """Use a new lock in a forked child, as another thread of the parent may have held it."""
        self.lock = threading.Lock()


_SINGLE_BLAS = _SingleBLAS()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SINGLE_BLAS.after_fork)


#: returns a context manager inside which NumPy's and SciPy's own BLAS runs on one thread, and
#: torch's as before. After each small product, the other threads of OpenBLAS spin for milliseconds
#: on the cores that torch is about to need, which doubles the time of an optimisation.
blas_on_one_thread = _SINGLE_BLAS.held


def limited(
    work: float, pays_from: Mapping[str, float] = PAYS_FROM
) -> AbstractContextManager[None]:
    """Run an operation of ``work`` multiplications on a suitable number of threads in the block.

    The caller's setting is an upper limit, and is restored afterwards. ``pays_from`` is that of
    ``threads_for``.
    """
    return _LIMITER.request(threads_for(work, pays_from), hold=False)


#: ``at_most(number)`` returns a context manager inside which operations run on at most so many
#: threads, whatever they need
at_most = _LIMITER.request


def threads_allowed() -> int:
    """Return the threads that this Python thread may use, by the cores and the caller's setting.

    In a forked child it is 1.
    """
    return min(available_cores(), _LIMITER.ceiling())


def limited_by(
    work: Callable[..., float], pays_from: Mapping[str, float] = PAYS_FROM
) -> Callable[[F], F]:
    """Return a decorator that runs a function on a suitable number of threads.

    Args:
        work: Maps the function's arguments to its number of multiplications.
        pays_from: The number from which a second thread pays, by how threads wait.
    """

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with limited(work(*args, **kwargs), pays_from):
                return function(*args, **kwargs)

        return wrapped

    return decorate


def threads_of_process(wanted: int) -> int:
    """Return the threads that a library may use: ``wanted``, and 1 in a forked child.

    A library on GNU's OpenMP would wait there for threads that only the parent has.
    """
    return 1 if _LIMITER.forked else wanted


def side_by_side(
    function: Callable[[Piece], None],
    pieces: Sequence[Piece],
    *,
    work: float,
    at_once: int,
    device: torch.device,
) -> None:
    """Call ``function`` with each piece, in several threads where that is faster.

    Each thread runs torch on one thread. Where matrices are small, this is faster than several
    threads in each operation, which then wait for one another. There is one thread where gradients
    are on, and on a GPU. The results do not depend on the number of threads.

    Args:
        function: Piece -> None. It stores its result, in a place of its own for each piece.
        pieces: The pieces.
        work: The number of multiplications of all pieces together.
        at_once: The number of pieces that fit into memory at once.
        device: Where the function computes.

    Raises:
        Exception: What ``function`` raises at the first piece that fails.
    """
    number = min(at_once, len(pieces), threads_allowed())
    serial = torch.is_grad_enabled() or device.type != "cpu" or work < PIECES_PAY_FROM
    if number <= 1 or serial:
        for piece in pieces:
            function(piece)
        return
    inference = torch.is_inference_mode_enabled()

    def one(piece: Piece) -> None:
        # both modes belong to a thread
        with torch.inference_mode(inference), torch.no_grad(), at_most(1):
            function(piece)

    # the request of this thread keeps the caller's setting while those of the others come and go
    with at_most(1), ThreadPoolExecutor(number) as pool:
        futures = [pool.submit(one, piece) for piece in pieces]
        try:
            for future in futures:
                future.result()
        except BaseException:  # Ctrl-C too: the pieces that have not begun are not needed
            pool.shutdown(wait=False, cancel_futures=True)
            raise
