"""Constants and natural steps stay finite where the best constant, or a term, is infinite."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from torch import Tensor

from ppgp.errors import DataError
from ppgp.likelihoods import (
    Bernoulli,
    Exponential,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Predicted,
    Weibull,
    ZeroInflated,
)
from ppgp.likelihoods.scored import Scored

F64 = torch.float64
N = 40


def constant(value: float) -> Tensor:
    return torch.full((N,), value, dtype=F64)


@pytest.mark.parametrize("kind", ["nll", "crps"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_one_class_starts_at_half_a_row_of_the_other(value: float, kind: str) -> None:
    share = (N * value + 0.5) / (N + 1)
    logit = math.log(share / (1 - share))
    assert float(Bernoulli().initial(constant(value), kind)) == pytest.approx(logit, rel=1e-12)
    probit = float(Bernoulli("probit").initial(constant(value), kind))
    assert float(mp.ncdf(probit)) == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize("kind", ["nll", "crps"])
def test_counts_of_0_alone_start_at_half_an_event(kind: str) -> None:
    start = float(Poisson().initial(constant(0.0), kind))
    assert math.exp(start) * N == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("law", "value"),
    [
        (NegativeBinomial(shape=Predicted()), 0.0),
        (ZeroInflated(Poisson(), Predicted()), 0.0),
        (Ordinal(cutpoints=(-0.4, 0.7)), 0.0),
        (Ordinal(cutpoints=(-0.4, 0.7)), 2.0),
    ],
)
def test_other_starts_at_an_end_are_moderate(law: Scored, value: float) -> None:
    start = law.initial(constant(value))
    assert float(start[0].abs()) < 2 + math.log(2 * N)
    score = law.score({}, start[:, None].expand(-1, N), constant(value))
    assert bool(torch.isfinite(score).all())


@pytest.mark.parametrize(
    "law", [Exponential(), Weibull(shape=Predicted()), LogNormal(noise=Predicted())]
)
def test_targets_without_an_event_are_refused(law: Scored) -> None:
    y = torch.linspace(1, 2, N, dtype=F64)
    with pytest.raises(DataError, match="not censored"):
        law.initial(y, right_censored=torch.ones(N, dtype=torch.bool))
    one = torch.arange(N) > 0
    assert bool(torch.isfinite(Exponential().initial(y, right_censored=one)).all())


@pytest.mark.parametrize("log_ratio", [3.0, 6.9, 40.0])
@pytest.mark.parametrize("log_shape", [2.0, 6.0])
def test_steps_of_weibull_are_limited_where_its_power_overflows(
    log_shape: float, log_ratio: float
) -> None:
    f = torch.tensor([[0.2], [log_shape]], dtype=F64)
    y = torch.tensor([math.exp(0.2 + log_ratio)], dtype=F64)
    with mp.workdps(60):
        k = mp.exp(log_shape)
        L = k * (mp.log(float(y)) - mp.mpf(0.2))
        u, euler = mp.exp(L), mp.euler
        slopes = mp.matrix([k * (1 - u), -1 - L * (1 - u)])
        both = -k * (1 - euler)
        metric = mp.matrix([[k**2, both], [both, mp.pi**2 / 6 + (1 - euler) ** 2]])
        exact = mp.lu_solve(metric, slopes)
    found = Weibull(shape=Predicted()).natural({}, f, y)[:, 0].tolist()
    for ours, step, limit in zip(found, exact, (1e9, 4.0), strict=True):
        limited = math.copysign(float(min(abs(step), limit)), float(mp.sign(step)))
        assert ours == pytest.approx(limited, rel=1e-6)


@pytest.mark.parametrize("log_noise", [7.0, 7.2, 8.0, 10.0, 20.0])
@pytest.mark.parametrize("log_y", [-3.0, 0.2, 4.0])
def test_steps_of_log_normal_under_the_crps_are_finite(log_noise: float, log_y: float) -> None:
    """Beyond the largest sd whose CRPS is a float, the step is that of this sd."""
    y = torch.tensor([math.exp(log_y)], dtype=F64)
    law = LogNormal(noise=Predicted())

    def exact(log_noise: float) -> list[float]:
        with mp.workdps(1000):
            s, f = mp.exp(mp.mpf(log_noise) / 2), mp.mpf("0.2")
            z = (mp.log(mp.mpf(float(y))) - f) / s
            mean, root = mp.exp(f + s**2 / 2), mp.sqrt(2)
            share = mp.ncdf(z - s) - mp.ncdf(-s / root)
            by_log_s = s * mean * (-2 * s * share + 2 * mp.npdf(z - s) - root * mp.npdf(s / root))
            unit = mp.exp(f + s**2 / 4) / mp.sqrt(mp.pi)
            metric = mp.matrix(
                [[unit / s, unit * s / 4], [unit * s / 4, unit * (s + s**3 / 2) / 8]]
            )
            steps = mp.lu_solve(metric, mp.matrix([-2 * mean * share, by_log_s / 2]))
            return [float(step) for step in steps]

    f = torch.tensor([[0.2], [log_noise]], dtype=F64)
    found = law.natural({}, f, y, "crps")[:, 0].tolist()
    largest = math.log(2 * (math.log(torch.finfo(F64).max) - 40))
    truth = exact(min(log_noise, largest))
    assert found[0] == pytest.approx(truth[0], rel=1e-4, abs=1e-6)
    assert found[1] == pytest.approx(max(min(truth[1], 8.0), -8.0), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("log_shape", [-4.0, -5.0, -6.0, -8.0])
@pytest.mark.parametrize("log_y", [-3.0, 0.2, 4.0])
def test_steps_of_weibull_under_the_crps_are_finite(log_shape: float, log_y: float) -> None:
    """Below the least shape whose CRPS is a float, the step is that of this shape."""
    y = torch.tensor([math.exp(log_y)], dtype=F64)
    with mp.workdps(60):
        at, log_k = mp.mpf(0.2), mp.log(max(mp.exp(log_shape), mp.mpf(1) / 150))

        def crps(f: mp.mpf, log_k: mp.mpf) -> mp.mpf:
            k = mp.exp(log_k)
            b, u = 1 + 1 / k, mp.exp(k * (mp.log(mp.mpf(float(y))) - f))
            own = mp.mpf(float(y)) * (1 - 2 * mp.exp(-u))
            return own + mp.exp(f) * (mp.gamma(b) * 2 ** (-1 / k) - 2 * mp.gammainc(b, 0, u))

        slopes = mp.matrix([mp.diff(crps, (at, log_k), n) for n in ((1, 0), (0, 1))])
        k = mp.exp(log_k)
        b = 2 + 1 / k
        unit, middle = 2 * mp.exp(at) * mp.gamma(b) / 2**b, mp.digamma(b) - mp.log(2)
        last = (middle**2 + mp.psi(1, b)) / k
        metric = unit * mp.matrix([[k, -middle], [-middle, last]])
        steps = [float(step) for step in mp.lu_solve(metric, slopes)]
    f = torch.tensor([[0.2], [log_shape]], dtype=F64)
    found = Weibull(shape=Predicted()).natural({}, f, y, "crps")[:, 0].tolist()
    assert found[0] == pytest.approx(steps[0], rel=1e-4)
    assert found[1] == pytest.approx(max(min(steps[1], 4.0), -4.0), rel=1e-4)
