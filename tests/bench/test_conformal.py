"""Full conformal prediction of a GP beside MAPIE's refits, and a million calibration rows."""

from __future__ import annotations

import resource
import time
import warnings
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from side_by_side import show

from ppgp import conformal
from ppgp.conformal import Score, calibrate, full_interval, leave_one_out_parts
from ppgp.posterior.prediction import Prediction

ROWS = 1_000_000
CLOSED = [
    conformal.Absolute(),
    conformal.Normalized(),
    conformal.Signed(),
    conformal.Quantile(),
    conformal.Quantile(unit="width"),
    conformal.PIT(),
    conformal.Density(),
]


@pytest.mark.filterwarnings("ignore")
def test_full_conformal_of_a_gp(benchmark: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapie = pytest.importorskip("mapie.regression")
        scores = pytest.importorskip("mapie.conformity_scores")
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process import kernels as sk

    rng = np.random.default_rng(0)
    n = 400
    X, new = rng.normal(size=(n, 2)), rng.normal(size=(50, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
    signal, noise = 1.3 * sk.RBF(0.7), 0.2

    def ours() -> np.ndarray:
        arrays = (signal(X) + noise * np.eye(n), y, signal(X, new), np.full(50, 1.3 + noise))
        parts = leave_one_out_parts(*map(torch.as_tensor, arrays))
        return torch.stack(full_interval(parts, 0.9), 1).numpy()

    started = time.perf_counter()
    peer = mapie.CrossConformalRegressor(
        GaussianProcessRegressor(signal + sk.WhiteKernel(noise), optimizer=None),
        confidence_level=0.9,
        conformity_score=scores.StdConformityScore(),
        method="plus",
        cv=n,
    )
    wanted = peer.fit_conformalize(X, y).predict_interval(new)[1][:, :, 0]
    theirs = time.perf_counter() - started
    found = benchmark.pedantic(ours, rounds=5, warmup_rounds=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    ratio = show(
        f"full conformal GP, n = {n}, 50 new rows",
        {"ppgp": benchmark.stats["median"], "MAPIE": theirs},
        "s",
        1.0,
    )
    benchmark.extra_info["ratio"] = ratio
    assert ratio <= 1 / 50


@pytest.mark.parametrize("scaled", [False, True], ids=["Absolute", "Normalized"])
def test_split_calibration_beside_crepes(scaled: bool, benchmark: Any) -> None:
    """100,000 calibration rows, and the intervals of as many; one thread, time of the processor."""
    crepes = pytest.importorskip("crepes")
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(1, 100_000, generator=generator, dtype=torch.float64)
    sd = 0.5 + mean.abs()
    y = mean[0] + torch.randn(100_000, generator=generator, dtype=torch.float64)
    prediction = Prediction(dist.Normal(mean, sd))
    score = conformal.Normalized() if scaled else conformal.Absolute()
    sigmas = sd[0].numpy() if scaled else None

    def ours() -> None:
        calibrate(score, prediction, y)(prediction, level=0.9)

    def theirs() -> None:
        peer = crepes.ConformalRegressor().fit(residuals=(y - mean[0]).numpy(), sigmas=sigmas)
        peer.predict_int(y_hat=mean[0].numpy(), sigmas=sigmas, confidence=0.9)

    def least(work: Any) -> float:
        times = []
        for _ in range(15):
            started = time.process_time()
            work()
            times.append(time.process_time() - started)
        return min(times)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        benchmark.pedantic(ours, rounds=1, warmup_rounds=1)
        figures = {"ppgp": 1000 * least(ours), "crepes": 1000 * least(theirs)}
    finally:
        torch.set_num_threads(threads)
    ratio = show(f"split calibration, {score!r}, 100,000 rows", figures, "ms", 1.0)
    assert ratio <= 2.0


@pytest.mark.parametrize("score", CLOSED, ids=repr)
def test_a_million_calibration_rows_and_a_million_intervals(score: Score, benchmark: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(1, ROWS, generator=generator, dtype=torch.float64)
    prediction = Prediction(dist.Normal(mean, 0.5 + mean.abs()))
    y = mean[0] + torch.randn(ROWS, generator=generator, dtype=torch.float64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    benchmark.pedantic(
        lambda: calibrate(score, prediction, y)(prediction, level=0.9), rounds=3, warmup_rounds=1
    )
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    seconds = benchmark.stats["median"]
    print(
        f"\n{score!r}: {seconds:.2f} s for {ROWS} calibration rows and intervals, "
        f"{grown:.0f} MB more"
    )
    assert seconds < 2.0
    assert grown < 60 * ROWS * 8 / 2**20
