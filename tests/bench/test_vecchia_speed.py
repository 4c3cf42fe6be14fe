"""A whole fit of Vecchia's approximation beside gpboost, in CPU seconds of one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from side_by_side import show
from threadpoolctl import threadpool_limits

import ppgp
from ppgp import Dataset, inference, models
from ppgp.density import Target
from ppgp.kernels import Matern
from ppgp.runtime.seeding import seeded

N = 20_000
NEIGHBOURS = 30
LIMIT = 0.8  # of gpboost's
NATS = 1.0  # by which the log likelihoods at the two ends may differ


def field(n: int) -> Dataset:
    """Return rows of a Matern 3/2 field with lengthscale 0.1 on the unit square, and noise 0.1."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    like = Dataset(X, torch.zeros(n, dtype=X.dtype))
    model = models.Vecchia(Matern(1.5, 1.0, 0.1), 0.1, NEIGHBOURS, drift="none", mean=0.0)
    with seeded(0):
        return Dataset(X, model.prepare(like)._marginal({}, X, None).sample())


def cpu_seconds(function: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return function(), time.process_time() - started


def ours(data: Dataset, drift: Any = "none") -> dict[str, float]:
    model = models.Vecchia(Matern(1.5), neighbours=NEIGHBOURS, drift=drift)
    posterior = ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)
    return {name: float(value) for name, value in posterior.theta.items() if name != "mean"}


def by_gpboost(data: Dataset) -> dict[str, float]:
    gpboost = pytest.importorskip("gpboost")
    model = gpboost.GPModel(
        gp_coords=data.X.numpy(),
        cov_function="matern",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=NEIGHBOURS,
        likelihood="gaussian",
        num_parallel_threads=1,
    )
    model.fit(y=data.y.numpy())
    noise, variance, length = model.get_cov_pars().to_numpy().ravel()[:3]
    return {"noise": noise, "kernel.variance": variance, "kernel.lengthscale": length}


def log_likelihood(data: Dataset, theta: dict[str, float]) -> float:
    """Return log p(y) at hyperparameters, under ours."""
    kernel = Matern(1.5, theta["kernel.variance"], theta["kernel.lengthscale"])
    model = models.Vecchia(kernel, theta["noise"], NEIGHBOURS, drift="none", mean=0.0)
    target = Target(model.prepare(data), data, empty=True)
    return float(target.log_density(torch.zeros(0, dtype=torch.float64)))


@pytest.mark.filterwarnings("ignore")
def test_a_whole_fit_beside_gpboost(benchmark: Any) -> None:
    """Both search the neighbours, and find the mode of a process with mean 0 and a nugget."""
    pytest.importorskip("gpboost")
    data = field(N)
    data = Dataset(data.X, data.y - data.y.mean())
    few = data.rows(torch.arange(100))
    with threadpool_limits(1):
        torch.set_num_threads(1)
        ours(few), by_gpboost(few)  # imports
        own, seconds = cpu_seconds(lambda: ours(data))
        _, with_trend = cpu_seconds(lambda: ours(data, "constant"))
        peer, peers_seconds = cpu_seconds(lambda: by_gpboost(data))
    figures = {
        "ppgp": seconds,
        "(ppgp, constant trend)": with_trend,
        "gpboost": peers_seconds,
    }
    ratio = show(f"Vecchia, Matern 3/2, {N:,} rows, a fit, CPU", figures, "s", 1.0)
    ends = {name: log_likelihood(data, end) for name, end in (("ppgp", own), ("gpboost", peer))}
    print("  log likelihoods at the ends: ", {name: round(v, 4) for name, v in ends.items()})
    print(f"  hyperparameters: ppgp {own}, gpboost {peer}")
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(lambda: None, rounds=1, iterations=1)
    assert ends["ppgp"] > ends["gpboost"] - NATS
    assert ratio <= LIMIT
