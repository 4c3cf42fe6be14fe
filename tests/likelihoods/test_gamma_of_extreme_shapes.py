"""The gamma likelihood at shapes where its terms cancel, or beyond the table of its CRPS metric."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from scipy import integrate, special
from torch import Tensor

from ppgp.distributions.gamma_functions import HIGHEST, LOWEST, gamma_crps_metric
from ppgp.likelihoods import Gamma, Predicted

F64 = torch.float64
LAW = Gamma(shape=Predicted())


def at(log_shape: float) -> Tensor:
    return torch.tensor([[0.3], [log_shape]], dtype=F64)


@pytest.mark.parametrize("log_shape", [-6.0, 0.0, 3.0, 8.0, 20.0, 30.0, 40.0, 60.0])
@pytest.mark.parametrize("ratio", [0.02, 1.0, 1.0 + 1e-6, 3.0])
def test_the_log_score_keeps_its_digits(log_shape: float, ratio: float) -> None:
    f = at(log_shape)
    y = ratio * f[0].exp()
    r = float(y / f[0].exp())
    with mp.workdps(80):
        a = mp.exp(mp.mpf(log_shape))
        excess = mp.log(mp.mpf(r)) + 1 - mp.mpf(r)
        score = mp.loggamma(a) + mp.log(mp.mpf(float(y))) - a * (mp.log(a) - 1 + excess)
        slope = a * (mp.digamma(a) - mp.log(a) - excess)
        information = a * (a * mp.psi(1, a) - 1)
        step = slope / information
    assert float(LAW.score({}, f, y)) == pytest.approx(float(score), rel=1e-9)
    assert float(LAW.gradient({}, f, y)[1]) == pytest.approx(float(slope), rel=1e-9)
    assert float(LAW.metric({}, f)[0, 1, 1]) == pytest.approx(float(information), rel=1e-9)
    limited = math.copysign(min(abs(float(step)), 4.0), float(step))
    assert float(LAW.natural({}, f, y)[1]) == pytest.approx(limited, rel=1e-8)


@pytest.mark.parametrize("log_shape", [15.9, 16.1, 18.0, 20.0, 30.0])
def test_the_metric_of_the_crps_of_large_shapes_is_that_of_the_normal(log_shape: float) -> None:
    a = math.exp(log_shape)
    mean, shapes, both = (float(x) for x in gamma_crps_metric(torch.tensor(a, dtype=F64)))
    assert mean == pytest.approx(math.sqrt(a / math.pi), rel=1e-6)
    assert shapes == pytest.approx(1 / (8 * math.sqrt(math.pi * a)), rel=1e-6)
    assert abs(both) < 1e-3 * math.sqrt(mean * shapes)


@pytest.mark.parametrize("log_shape", [-7.9, -8.1, -9.0, -11.0, -14.0])
def test_the_metric_of_the_crps_of_small_shapes_is_its_integral(log_shape: float) -> None:
    """1 - F is Q(a, a z); its slopes in log mean and log shape are integrated over log(a z)."""
    a, h = math.exp(log_shape), 1e-3

    def slopes(t: float) -> tuple[float, float]:
        x = math.exp(t)
        by_mean = math.exp(a * t - x - special.gammaln(a))
        step = [float(special.gammaincc(a * math.exp(c * h), math.exp(t + c * h))) for c in (1, -1)]
        return by_mean, (step[0] - step[1]) / (2 * h)

    def entry(i: int, j: int) -> float:
        def inside(t: float) -> float:
            pair = slopes(t)
            return 2 * pair[i] * pair[j] * math.exp(t) / a

        return integrate.quad(inside, -40, 4.5, limit=400, epsrel=1e-8)[0]

    found = [float(x) for x in gamma_crps_metric(torch.tensor(a, dtype=F64))]
    exact = entry(0, 0), entry(1, 1), entry(0, 1)
    tolerance = 1e-5 if log_shape > LOWEST else 1e-3
    for ours, truth in zip(found, exact, strict=True):
        assert ours == pytest.approx(truth, rel=tolerance)


def test_the_metric_of_the_crps_has_no_jump_at_the_ends_of_the_table() -> None:
    for end in (LOWEST, HIGHEST):
        near = [
            gamma_crps_metric(torch.tensor(math.exp(end + d), dtype=F64)) for d in (-1e-9, 1e-9)
        ]
        for below, above in zip(*near, strict=True):
            torch.testing.assert_close(below, above, rtol=1e-6, atol=0)
