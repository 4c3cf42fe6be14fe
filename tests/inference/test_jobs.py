"""``each``: jobs in this process or on workers, in any backend of joblib."""

from __future__ import annotations

import collections
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import joblib
import psutil
import pytest
import torch
from joblib.parallel import ThreadingBackend

import ppgp
from ppgp.errors import DataError, DataWarning, NumericalError, SettingError
from ppgp.inference import MAP, Ensemble, Exact
from ppgp.inference.jobs import each, in_parallel
from ppgp.models import LinearRegression


def square(job: int) -> tuple[int, int]:
    """Return the square of a job and the threads that it has."""
    return job * job, torch.get_num_threads()


def in_order(results: Iterator[tuple[int, Any]]) -> list[Any]:
    found = dict(results)
    return [found[number] for number in range(len(found))]


class Gathered(ThreadingBackend):
    """A backend of somebody else, which returns results all at once, as Ray's does."""

    supports_return_generator = False


class Streamed(ThreadingBackend):
    """A backend of somebody else, which returns results as they end, as Dask's does."""


joblib.register_parallel_backend("gathered", Gathered)
joblib.register_parallel_backend("streamed", Streamed)
BACKENDS = ["gathered", "streamed"]


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
def test_jobs_of_this_process_have_one_thread_each() -> None:
    assert list(each(square, [3, 5])) == [(0, (9, 1)), (1, (25, 1))]
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_active_backend_does_the_jobs(backend: str) -> None:
    with joblib.parallel_config(backend, n_jobs=2):
        assert in_parallel(None)
        assert in_order(each(square, range(20))) == [(i * i, 1) for i in range(20)]
        assert not in_parallel(1)
    assert torch.get_num_threads() == 2
    assert not in_parallel(None)


def test_there_are_at_most_as_many_processes_as_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counted(joblib.Parallel):
        def __init__(self, n_jobs: int, **options: Any) -> None:
            asked.append(n_jobs)
            super().__init__(n_jobs=n_jobs, **options)

    monkeypatch.setattr(joblib, "Parallel", Counted)
    assert in_order(each(square, [3, 5], 8)) == [(9, 1), (25, 1)]
    assert asked == [2]


@pytest.mark.parametrize("name", ["threading", "sequential"])
def test_fits_in_threads_would_take_turns_so_that_this_process_does_the_jobs(name: str) -> None:
    with joblib.parallel_config(name, n_jobs=2):
        assert not in_parallel(None)
        assert [number for number, _ in each(square, range(3))] == [0, 1, 2]


def nested(job: int) -> list[int]:
    return [threading.get_ident() for _ in range(job)] + [
        own for _, own in each(lambda _: threading.get_ident(), range(2))
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_does_its_own_jobs_itself(backend: str) -> None:
    with joblib.parallel_config(backend, n_jobs=2):
        for _, threads in each(nested, [1, 1, 1]):
            assert len(set(threads)) == 1


def refused(job: int) -> int:
    if job == 2:
        raise DataError("numbers", "text", "convert it")
    return job


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_the_error_of_a_job_reaches_the_caller_as_it_is(backend: str | None) -> None:
    with (
        joblib.parallel_config(backend or "loky", n_jobs=2 if backend else 1),
        pytest.raises(DataError, match="expected numbers, got text: convert it"),
        closing(each(refused, range(5))) as results,
    ):
        list(results)


def warns(job: int) -> int:
    warnings.warn("look at the data", DataWarning, stacklevel=2)
    warnings.warn("the code is old", DeprecationWarning, stacklevel=2)
    return job


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_warnings_of_a_job_reach_the_caller(backend: str) -> None:
    with (
        joblib.parallel_config(backend, n_jobs=2),
        pytest.warns(DataWarning, match="look at the data") as caught,
    ):
        assert len(list(each(warns, range(2)))) == 2
    assert {each.category for each in caught} == {DataWarning}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fit_that_holds_the_locks_shares_them_with_jobs_in_threads(backend: str) -> None:
    X = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    data = ppgp.Dataset(X, X[:, 0] ** 2)
    how = Ensemble(MAP(), members=3)
    alone = ppgp.fit(LinearRegression(), data, how, progress=False)
    with joblib.parallel_config(backend, n_jobs=2):
        shared = ppgp.fit(LinearRegression(), data, how, progress=False)
    assert all(torch.equal(alone.draws[name], shared.draws[name]) for name in alone.draws)


def calls_with_no_worker() -> dict[str, Callable[[int], Any]]:
    X = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    data = ppgp.Dataset(X, X[:, 0] ** 2)
    model = LinearRegression()
    return {
        "each": lambda workers: each(square, [1], workers),
        "sbc": lambda workers: ppgp.sbc(model, Exact(), workers=workers),
        "cross_calibrate": lambda workers: ppgp.cross_calibrate(model, data, workers=workers),
        "MAP": lambda workers: MAP(workers=workers),
        "Ensemble": lambda workers: Ensemble(workers=workers),
    }


@pytest.mark.parametrize("workers", [0, -1])
@pytest.mark.parametrize("name", calls_with_no_worker())
def test_no_worker_is_one_sentence(name: str, workers: int) -> None:
    with pytest.raises(SettingError, match=r"whole number of at least 1.*as workers") as said:
        calls_with_no_worker()[name](workers)
    assert len(str(said.value).splitlines()) == 1
    assert str(workers) in str(said.value)


def test_results_do_not_record_the_workers() -> None:
    assert MAP(workers=2) == MAP()
    assert hash(Ensemble(workers=3)) == hash(Ensemble())
    assert repr(MAP(workers=2)) == repr(MAP())


def dies(job: tuple[int, str]) -> int:
    """Return the number of a job; job 3 kills its worker, once for each letter of the mark."""
    number, folder = job
    with Path(folder, str(number)).open("a") as log:
        log.write("x")
    if number == 3 and len(Path(folder, "3").read_text()) <= len(
        Path(folder, "deaths").read_text()
    ):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return number


def children() -> set[int]:
    """Return the workers of loky that run."""
    found = psutil.Process().children(recursive=True)
    return {each.pid for each in found if "loky" in " ".join(each.cmdline())}


@pytest.mark.parametrize(("deaths", "sent"), [("x", 2), ("xxx", 2)], ids=["once", "always"])
def test_a_killed_worker_costs_its_job_once(deaths: str, sent: int, tmp_path: Path) -> None:
    (tmp_path / "deaths").write_text(deaths)
    jobs = [(number, str(tmp_path)) for number in range(12)]
    if len(deaths) == 1:
        assert in_order(each(dies, jobs, 2)) == list(range(12))
    else:
        with pytest.raises(NumericalError, match="job 3, which ended its worker twice"):
            list(each(dies, jobs, 2, noun="job"))
    # the guilty job may end the sweep before others have begun
    begun = [number for number, _ in jobs if (tmp_path / str(number)).exists()]
    times = {number: len((tmp_path / str(number)).read_text()) for number in begun}
    assert times[3] == sent
    assert max(times.values()) == 2


def waits(job: int) -> int:
    if job == 9:
        time.sleep(300)
    return job


@pytest.mark.usefixtures("listening")
def test_ctrl_c_leaves_what_there_is_and_no_process() -> None:
    """Ctrl-C comes once all jobs but one are done."""
    found: dict[int, int] = {}

    def press() -> None:
        while len(found) < 9:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with closing(each(waits, range(10), 2)) as results, pytest.raises(KeyboardInterrupt):
        collections.deque(found.update([each]) for each in results)
    assert found == {number: number for number in range(9)}
    end = time.monotonic() + 20
    while children() and time.monotonic() < end:
        time.sleep(0.05)
    assert len(children()) <= 1  # loky's tracker of resources
