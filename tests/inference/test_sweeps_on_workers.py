"""Sweeps have equal results, bit for bit, in this process, on loky, on Dask and on Ray."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset
from ppgp.cli.fit_commands import fit_grid
from ppgp.errors import NumericalError
from ppgp.experiments import experiment
from ppgp.inference import MAP, NUTS, Ensemble, Laplace
from ppgp.inference.jobs import each, goes_elsewhere
from ppgp.kernels import RBF
from ppgp.models import GP, LinearRegression
from ppgp.priors import InverseGamma

LINEAR = LinearRegression(noise=InverseGamma(3.0, 1.0))


def rows(n: int = 30) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    noise = 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(X, X[:, 0].sin() + noise)


def of_starts(workers: int | None) -> list[Tensor]:
    posterior = ppgp.fit(GP(RBF()), rows(), MAP(starts=6, workers=workers), progress=False)
    return [posterior.stats["ends"], posterior.stats["end_log_densities"]]


def of_members(workers: int | None) -> list[Tensor]:
    how = Ensemble(MAP(), members=3, workers=workers)
    posterior = ppgp.fit(GP(RBF()), rows(), how, progress=False)
    return [*posterior.draws.values(), posterior.stats["log_density"]]


def of_folds(workers: int | None) -> list[Tensor]:
    calibrator = ppgp.cross_calibrate(GP(RBF()), rows(), MAP(), folds=4, workers=workers)
    region = calibrator(rows().X[:5], level=0.7)
    return [region.lower, region.upper]


def of_simulations(workers: int | None) -> list[Tensor]:
    result = ppgp.sbc(LINEAR, Laplace(draws=100), 20, workers=workers, progress=False)
    return [torch.from_numpy(np.asarray(ranks)) for ranks in result.ranks.values()]


def of_fits(workers: int | None) -> list[Tensor]:
    models, methods = {"gp": GP(RBF()), "linear": LINEAR}, {"map": MAP(), "laplace": Laplace()}
    pairs = [(model, method) for model in models for method in methods]
    posteriors, *_ = fit_grid(models, methods, pairs, rows(), 0, False, workers)
    comparison = ppgp.compare(posteriors, test=rows(12))
    assert list(posteriors) == [f"{model} {method}" for model, method in pairs]
    columns = comparison.predictive[["rmse", "nll"]].to_numpy()
    return [*(v for p in posteriors.values() for v in p.draws.values()), torch.tensor(columns)]


def of_splits(workers: int | None) -> list[Tensor]:
    with TemporaryDirectory() as folder:
        generator = np.random.default_rng(0)
        X = generator.normal(size=(30, 2))
        masks = np.arange(30) % 3 == np.arange(3)[:, None]
        packed = np.packbits(masks, axis=1)
        np.savez(Path(folder) / "yacht.npz", X=X, y=X[:, 0] ** 2, n=30, splits=3, test_mask=packed)
        out = Path(folder) / "out"
        said = "" if workers is None else str(workers)
        options = {"data_dir": folder, "sets": "yacht", "models": "gp", "workers": said}
        (row,) = experiment("uci")(out, **options)
        assert row["splits"] == 3
        lines = (out / "splits.jsonl").read_text().splitlines()
    records = sorted(map(json.loads, lines), key=lambda record: record["split"])
    numbers = [[record[name] for name in ("rmse", "nll", "coverage")] for record in records]
    return [torch.tensor(numbers, dtype=torch.float64)]


def of_chains(workers: int | None) -> list[Tensor]:
    """Chains are jobs where an active backend has several machines, and only there."""
    how = NUTS(draws=30, warmup=30, chains=2)
    return list(ppgp.fit(LINEAR, rows(), how, progress=False).draws.values())


SWEEPS = [of_starts, of_members, of_folds, of_simulations, of_fits, of_splits, of_chains]


@pytest.fixture(scope="module")
def alone() -> dict[str, list[Tensor]]:
    return {}


@contextmanager
def on_dask() -> Iterator[None]:
    distributed = pytest.importorskip("distributed", reason="dask and distributed are missing")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", protocol="tcp"
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        yield


@contextmanager
def on_ray() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="ray is missing")
    from ray.util.joblib import register_ray

    register_ray()
    here = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}  # workers import this module
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=here)
    try:
        with joblib.parallel_config("ray"):
            yield
    finally:
        ray.shutdown()


CLUSTERS = {"loky": nullcontext, "dask": on_dask, "ray": on_ray}


ON_RAY = pytest.param("ray", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["loky", "dask", ON_RAY])
def spread(request: pytest.FixtureRequest) -> Iterator[int | None]:
    """Yield ``workers`` of a sweep on two processes."""
    with CLUSTERS[request.param]():
        yield 2 if request.param == "loky" else None


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.__name__)
def test_results_are_equal_on_any_workers(
    spread: int | None, sweep: Callable[..., Any], alone: dict[str, list[Tensor]]
) -> None:
    with joblib.parallel_config("loky", n_jobs=1):
        one = alone.setdefault(sweep.__name__, sweep(1))
    other = sweep(spread)
    assert len(one) == len(other) > 0
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def dies(job: tuple[int, str, int]) -> int:
    """Return the process of a job; job 1 kills its worker so many times."""
    number, folder, deaths = job
    if number == 1:
        with Path(folder, "sent").open("a") as log:
            log.write("x")
        if len(Path(folder, "sent").read_text()) <= deaths:
            os._exit(9)
    return os.getpid()


@pytest.mark.parametrize("spread", [ON_RAY], indirect=True)
@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_job_whose_worker_on_ray_ends_is_sent_once_more(deaths: int, tmp_path: Path) -> None:
    assert goes_elsewhere()
    jobs = [(number, str(tmp_path), deaths) for number in range(3)]
    if deaths == 1:
        processes = dict(each(dies, jobs))
        assert sorted(processes) == [0, 1, 2]
        assert os.getpid() not in processes.values()
    else:
        with pytest.raises(NumericalError, match="job 1, which ended its worker twice"):
            list(each(dies, jobs))
    assert (tmp_path / "sent").read_text() == "xx"
