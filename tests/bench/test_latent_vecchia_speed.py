"""Laplace's approximation with Vecchia's factor beside gpboost, in CPU seconds of one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import show
from test_vecchia_speed import NEIGHBOURS, field
from threadpoolctl import threadpool_limits

from ppgp import Dataset, likelihoods, models
from ppgp.density import Target
from ppgp.kernels import Matern

N = 20_000
ERRORS = 5.0  # standard errors by which the values may differ


def cpu_seconds(function: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return function(), time.process_time() - started


@pytest.mark.filterwarnings("ignore")
def test_a_value_of_counts_beside_gpboost(benchmark: Any) -> None:
    """The value at the same hyperparameters; gpboost has no gradient alone to be timed."""
    gpboost = pytest.importorskip("gpboost")
    X, f = field(N).X, field(N).y
    data = Dataset(X, torch.poisson(f.exp(), torch.Generator().manual_seed(0)))
    model = models.Vecchia(
        Matern(1.5), neighbours=NEIGHBOURS, likelihood=likelihoods.Poisson(), mean=0.0
    ).prepare(data)
    target = Target(model, data)
    z = torch.tensor([1.0, 0.1], dtype=torch.float64).log()
    peer = gpboost.GPModel(
        gp_coords=X.numpy(),
        cov_function="matern",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=NEIGHBOURS,
        likelihood="poisson",
        matrix_inversion_method="iterative",
        num_parallel_threads=1,
    )
    with threadpool_limits(1), torch.no_grad():
        torch.set_num_threads(1)
        theta = {name: value[None] for name, value in target.constrain(z).items()}
        marginal = model._marginal(target.constrain(z), X)
        own, value_alone = cpu_seconds(lambda: marginal.log_prob(data.y))
        error = model.fit_stats(theta, data)["log_density_error"]
        y, at = data.y.numpy(), np.array([1.0, 0.1])
        value, peers_seconds = cpu_seconds(lambda: -peer.neg_log_likelihood(at, y))
    _, seconds = cpu_seconds(lambda: target.value_and_grad(z))
    figures = {"ppgp": value_alone, "(ppgp, with slopes)": seconds, "gpboost": peers_seconds}
    ratio = show(f"Vecchia, counts, {N:,} rows, a value, CPU", figures, "s", 1.0)
    print(f"  values: ppgp {float(own):.2f} +- {error:.2f}, gpboost {value:.2f}")
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(lambda: None, rounds=1, iterations=1)
    assert float(own) == pytest.approx(value, abs=ERRORS * max(error, 1.0))
