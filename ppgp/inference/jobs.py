"""``each``: a sweep of independent jobs, in this process or on the workers of joblib.

The jobs of one machine go to loky, which joblib brings along. Inside
``with joblib.parallel_config("dask"):``, or that of any other backend, they go there. Every job
runs on one thread and draws its random numbers from its own seed, so that results depend neither on
the number of workers nor on the backend.
"""

from __future__ import annotations

import os
import threading
import traceback
import uuid
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyro

from ..display.user_warnings import warn
from ..errors import NumericalError
from ..runtime.libraries import imported
from ..runtime.process_locks import Turns, help_in, one_at_a_time, silenced, turns_of_this_thread
from ..runtime.processes import begin_worker, without_interrupts
from ..runtime.progress import bar
from ..runtime.threads import at_most, available_cores, blas_on_one_thread
from ..runtime.whole_numbers import check_workers
from .options import Count

__all__ = ["Workers", "each", "goes_elsewhere", "in_parallel", "number_of_workers"]

Workers = Count | None
LOCAL = ("loky", "multiprocessing", "sequential", "threading")  # backends of one machine
IDLE_SECONDS = 60  # until a worker of loky without a job ends
IN_A_BATCH = 4  # jobs per worker, where results come in batches
#: errors by which backends report that a worker ended before its job: those of loky, Dask and Ray
DEATHS = {"BrokenProcessPool", "KilledWorker", "WorkerCrashedError", "RayActorError"}


def number_of_workers(text: str) -> int | None:
    """Return the workers that a text gives, None for an empty one.

    Raises:
        SettingError: If it is no whole number of at least 1.
    """
    workers: Any = text.strip() or None
    if workers is not None and workers.lstrip("-").isdecimal():
        workers = int(workers)
    check_workers(workers)
    return workers


def each(
    work: Callable[[Any], Any],
    jobs: Iterable[Any],
    workers: int | None = None,
    progress: bool = False,
    *,
    title: str = "",
    noun: str = "job",
) -> Generator[tuple[int, Any], None, None]:
    """Do the work for each job; yield pairs of the number of a job and its result, as they end.

    Close the generator (``contextlib.closing``) to end workers that still run. After Ctrl-C it
    raises KeyboardInterrupt, and what it has yielded so far is complete. An error of a job is
    raised as it is.

    Args:
        work: ``work(job)``, which returns the same for the same job in every process.
        jobs: What differs between the jobs. Both are sent to workers by cloudpickle, and nothing
            is stored on disk.
        workers: How many processes, of this machine at most one for each job. 1: this one, in the
            order of the jobs. None: those of an active ``joblib.parallel_config``, or else 1. A job
            that has jobs of its own does them itself.
        progress: Whether to show a progress bar.
        title: What the bar says; "": the noun in the plural.
        noun: What one job is called in messages.

    Raises:
        SettingError: If there is no worker.
        NumericalError: If a job ends its worker, and does so again when it is sent once more.
    """
    check_workers(workers)
    waiting = list(jobs)
    several = len(waiting) > 1 or goes_elsewhere(workers)
    place = _place(workers, len(waiting)) if several else None
    if place is None:
        results = _in_this_process(work, waiting)
    else:
        results = _by_workers(place, work, waiting, noun)
    return _shown(results, len(waiting), progress, title or f"{noun}s")


def _shown(
    results: Generator[tuple[int, Any], None, None], total: int, progress: bool, title: str
) -> Generator[tuple[int, Any], None, None]:
    with closing(results), bar(title, total, progress) as update:
        for done, result in enumerate(results, 1):
            update(done)
            yield result


def _in_this_process(
    work: Callable[[Any], Any], jobs: list[Any]
) -> Generator[tuple[int, Any], None, None]:
    for number, job in enumerate(jobs):
        with _on_one_thread():
            value = work(job)
        yield number, value


@dataclass(frozen=True)
class _Place:
    """Where workers are.

    Attributes:
        workers: How many are asked for; -1: as many as there are.
        count: How many there are.
        own: Whether they are processes of loky that this module starts.
        streams: Whether results come as they end; else in batches.
    """

    workers: int
    count: int
    own: bool
    streams: bool

    def parallel(self) -> Any:
        """Return a ``joblib.Parallel`` that sends single jobs, by memory alone."""
        joblib = imported("joblib")
        options: dict[str, Any] = {"n_jobs": self.workers, "batch_size": 1, "max_nbytes": None}
        if self.streams:
            options["return_as"] = "generator_unordered"
        if not self.own:
            # a cluster is far away: a second job waits at each worker
            return joblib.Parallel(pre_dispatch="2*n_jobs", **options)
        own = joblib.parallel_config(
            "loky",
            inner_max_num_threads=1,
            idle_worker_timeout=IDLE_SECONDS,
            initializer=begin_worker,
            initargs=(os.getpid(),),
        )
        with own:
            return joblib.Parallel(pre_dispatch="n_jobs", **options)


def in_parallel(workers: int | None) -> bool:
    """Return whether several jobs go to workers, so that a job shows no progress of its own."""
    return _place(workers) is not None


def goes_elsewhere(workers: int | None = None) -> bool:
    """Return whether jobs go to a backend of several machines, such as Dask or Ray."""
    if workers is not None or _HERE.depth > 0:
        return False
    backend, _ = imported("joblib.parallel").get_active_backend()
    known = imported("joblib.parallel").BACKENDS
    local = [known[name] for name in LOCAL]
    return not (type(backend) in local or _by_threads(backend))


def _by_threads(backend: Any) -> bool:
    """Return whether workers are threads of this process, where fits take turns in any case."""
    if type(backend) is imported("joblib.parallel").BACKENDS["threading"]:
        return True
    scheduler = getattr(getattr(backend, "client", None), "scheduler", None)
    return str(getattr(scheduler, "address", "")).startswith("inproc://")  # Dask without processes


def _place(workers: int | None, jobs: int | None = None) -> _Place | None:
    """Return where jobs go; None: nowhere but this process.

    Args:
        workers: How many workers are asked for, as in ``each``.
        jobs: How many jobs there are; None: it is not known yet.
    """
    if workers == 1 or _HERE.depth > 0:
        return None
    joblib = imported("joblib.parallel")
    backend, configured = joblib.get_active_backend()
    if _by_threads(backend):
        return None
    wanted = configured if workers is None else workers
    streams = bool(backend.supports_return_generator)
    if type(backend) in [joblib.BACKENDS[name] for name in LOCAL]:
        if wanted is None or type(backend) is joblib.BACKENDS["sequential"]:
            return None
        count = backend.effective_n_jobs(wanted)
        if jobs is not None:
            count = min(count, jobs)
        own = type(backend) is joblib.BACKENDS["loky"]
        return None if count == 1 else _Place(count, count, own, streams)
    if wanted is None:
        wanted = getattr(backend, "default_n_jobs", 1)
        if wanted == 1:  # the default of a backend that says nothing of its size
            wanted = -1
    try:
        count = backend.effective_n_jobs(wanted)
    except Exception:  # a cluster that is not reached yet, as Ray's before its first job
        count = available_cores()
    return _Place(wanted, max(1, count), False, streams)


def _by_workers(
    place: _Place, work: Callable[[Any], Any], jobs: list[Any], noun: str
) -> Generator[tuple[int, Any], None, None]:
    """Yield numbers and results; jobs that a dying worker took along are sent once more.

    The second time, each of those that were under way is alone, so that the job that ends its
    worker is known.
    """
    waiting = list(range(len(jobs)))
    doubtful: list[int] = []
    while waiting or doubtful:
        alone = not waiting
        numbers = [doubtful.pop(0)] if alone else waiting
        under_way: dict[int, None] = {}  # in the order in which they were sent
        of_a_job = False
        try:
            with closing(_outcomes(place, work, jobs, numbers, under_way)) as outcomes:
                for number, outcome in outcomes:
                    del under_way[number]
                    waiting = [i for i in waiting if i != number]
                    of_a_job = True
                    result = outcome.opened()
                    of_a_job = False
                    yield number, result
        except Exception as error:
            if of_a_job or not _worker_died(error):
                raise
            if alone:
                raise _ends_its_worker(noun, numbers[0]) from error
            doubtful += under_way
            waiting = [i for i in waiting if i not in under_way]


def _outcomes(
    place: _Place,
    work: Callable[[Any], Any],
    jobs: list[Any],
    numbers: list[int],
    under_way: dict[int, None],
) -> Generator[tuple[int, _Outcome], None, None]:
    """Yield the outcomes of some jobs as they end; ``under_way`` gains those that are sent."""
    home = _Home.of_this_thread()
    delayed = imported("joblib").delayed(_run_job)

    def tasks(some: list[int]) -> Iterator[Any]:
        for number in some:
            under_way[number] = None
            yield delayed(work, number, jobs[number], home)

    if not place.streams:
        size = IN_A_BATCH * place.count
        for start in range(0, len(numbers), size):
            yield from place.parallel()(tasks(numbers[start : start + size]))
        return
    with without_interrupts():
        stream = place.parallel()(tasks(numbers))
    try:
        for numbered in stream:  # noqa: UP028  (yield from would close it, with a warning)
            yield numbered
    finally:
        with silenced(UserWarning):  # that jobs were cancelled, as they should be
            stream.close()


def _worker_died(error: BaseException) -> bool:
    return any(kind.__name__ in DEATHS for kind in type(error).__mro__)


def _ends_its_worker(noun: str, number: int) -> NumericalError:
    return NumericalError(
        f"a worker that lives until its {noun} is done",
        f"{noun} {number}, which ended its worker twice",
        "run it with workers=1 to see why, or give each worker more memory",
    )


_PROCESS = uuid.uuid4().hex  # forked children share it, and differ in their process ids
#: warnings about how code is written, which a user of the library cannot act on
OF_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning)


class _Here(threading.local):
    """What this thread is doing; ``depth`` counts the jobs around it that a worker was given."""

    depth = 0


_HERE = _Here()


@contextmanager
def _on_one_thread() -> Iterator[None]:
    """Run on one thread inside the block, so that results do not depend on who runs it."""
    with at_most(1), blas_on_one_thread():
        yield


class _Failure(Exception):
    """The traceback of an error in a worker; it is the cause of that error at the caller."""


@dataclass(frozen=True)
class _Home:
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
    def of_this_thread(cls) -> _Home:
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
            stack.enter_context(_on_one_thread())
            yield


def _leave() -> None:
    _HERE.depth -= 1


@dataclass(frozen=True)
class _Outcome:
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
            raise self.error from _Failure(f"in a worker:\n{self.trace}")
        return self.value


def _run_job(
    work: Callable[[Any], Any], number: int, job: Any, home: _Home
) -> tuple[int, _Outcome]:
    """Run one job in a worker; return its number and how it ended.

    A thread at a time does so in each process: the fits inside take turns in any case, and the
    filters of warnings belong to the process.
    """
    with home.entered(), one_at_a_time(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = _Outcome(work(job))
        except BaseException as error:  # KeyboardInterrupt too: an interrupted fit raises it
            outcome = _Outcome(error=_transportable(error), trace=traceback.format_exc())
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
