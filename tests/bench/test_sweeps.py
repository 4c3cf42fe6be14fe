"""Sweeps on two workers beside the time that perfect sharing would take.

Each of 200 jobs waits half a second, so that the rest is what sending jobs and results costs. The
workers have started before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import joblib
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ppgp.inference.jobs import each

JOBS, SECONDS, WORKERS = 200, 0.5, 2
MOST = {"loky": 1.15, "dask": 1.3}  # times the perfect time


def wait(job: float) -> float:
    time.sleep(job)
    return job


@contextmanager
def on_dask() -> Iterator[None]:
    distributed = pytest.importorskip("distributed", reason="dask and distributed are missing")
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        yield


@pytest.mark.parametrize("backend", MOST)
def test_two_workers_share_the_jobs(backend: str, benchmark: BenchmarkFixture) -> None:
    workers = WORKERS if backend == "loky" else None

    def sweep() -> int:
        return len(list(each(wait, [SECONDS] * JOBS, workers)))

    with on_dask() if backend == "dask" else nullcontext():
        list(each(wait, [SECONDS] * 2 * WORKERS, workers))
        assert benchmark.pedantic(sweep, rounds=1) == JOBS
    assert benchmark.stats is not None
    ratio = benchmark.stats.stats.min / (JOBS * SECONDS / WORKERS)
    print(f"{backend}: {ratio:.3f} of the perfect time")
    assert ratio <= MOST[backend]
