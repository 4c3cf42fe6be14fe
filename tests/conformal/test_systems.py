"""Conformal predictive systems: uniform at the truth, with the CRPS of their steps."""

from __future__ import annotations

import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from ppgp.conformal import Absolute, PredictiveSystem, Signed, calibrate, predictive_system
from ppgp.errors import DataError, SettingError
from ppgp.posterior.prediction import Prediction


def prediction(n: int, seed: int) -> tuple[Prediction, Tensor]:
    rng = np.random.default_rng(seed)
    mean, sd = torch.as_tensor(rng.normal(size=(1, n))), torch.as_tensor(0.5 + rng.random((1, n)))
    y = mean[0] + sd[0] * torch.as_tensor(rng.gamma(2.0, size=n) - 1.0)
    return Prediction(dist.Normal(mean, sd)), y


def test_the_cdf_at_the_truth_is_uniform() -> None:
    rng = np.random.default_rng(0)
    values = []
    for seed in range(1500):
        p, y = prediction(21, seed)
        system = predictive_system(p[:20], y[:20])(p[20:])
        values.append(float(system.cdf(y[20:], u=float(rng.random()))))
    assert stats.kstest(values, "uniform").pvalue > 0.001


def test_the_two_forms_agree() -> None:
    p, y = prediction(60, 1)
    system = predictive_system(p[:50], y[:50])(p[50:])
    table = PredictiveSystem("", values=system.steps())
    grid = torch.linspace(-3, 5, 7, dtype=torch.float64)[:, None].expand(7, 10)
    torch.testing.assert_close(system.cdf(grid), table.cdf(grid))
    torch.testing.assert_close(system.crps(y[50:]), table.crps(y[50:]))
    for level in (0.3, 0.5, 0.9):
        torch.testing.assert_close(system.quantile(level), table.quantile(level))


def test_the_crps_is_the_integral_over_the_steps() -> None:
    p, y = prediction(13, 2)
    system = predictive_system(p[:12], y[:12])(p[12:])
    steps, target = system.steps()[0].numpy(), float(y[12])
    x = np.linspace(min(steps.min(), target) - 1, max(steps.max(), target) + 1, 400001)
    F = np.searchsorted(steps, x, side="right") / 12
    wanted = integrate.trapezoid((F - (x >= target)) ** 2, x)
    assert float(system.crps(y[12:])) == pytest.approx(wanted, abs=2e-5)


def test_its_interval_equals_that_of_the_signed_score() -> None:
    p, y = prediction(80, 3)
    system = predictive_system(p[:70], y[:70])(p[70:])
    signed = calibrate(Signed(normalized=True), p[:70], y[:70])(p[70:], level=0.9)
    torch.testing.assert_close(system.interval(0.9).lower, signed.lower)
    torch.testing.assert_close(system.interval(0.9).upper, signed.upper)
    assert "marginal coverage >= 0.9" in system.interval(0.9).guarantee
    few = predictive_system(p[:18], y[:18])(p[70:]).interval(0.9)
    assert bool(few.infinite.all())
    assert "infinite" in few.guarantee


def test_memory_is_linear() -> None:
    n = 200_000
    zeros = torch.zeros(1, n, dtype=torch.float64)
    p = Prediction(dist.Normal(zeros, torch.ones_like(zeros)))
    y = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    system = predictive_system(p, y)(p)
    assert float(system.crps(y).mean()) == pytest.approx(1 / math.sqrt(math.pi), abs=0.01)
    assert bool(((system.cdf(y) > 0) & (system.cdf(y) < 1)).all())


def test_bad_input_is_refused() -> None:
    p, y = prediction(10, 4)
    with pytest.raises(DataError, match="one y per calibration row"):
        predictive_system(p, y[:9])
    with pytest.raises(DataError, match="one y per row"):
        predictive_system(p, y)(p).cdf(y[:3])
    with pytest.raises(SettingError, match=r"probability in \(0, 1\)"):
        predictive_system(p, y)(p).quantile(1.0)
    with pytest.raises(SettingError, match=r"level in \(0, 1\)"):
        calibrate(Absolute(), p, y)(p, level=2.0)
