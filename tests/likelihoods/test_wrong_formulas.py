"""Formulas of ngboost 0.5.11 that are wrong, beside ours and the truth by quadrature or autograd.

Ours agree with the truth to the tolerance of each test, and theirs miss it by far more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, special, stats
from torch import Tensor

from ppgp.likelihoods import (
    Exponential,
    FromDistribution,
    Gaussian,
    Laplace,
    LogNormal,
    Predicted,
    Scored,
    StudentT,
)

F64 = torch.float64
MU, S = 0.4, math.exp(-0.3)
STEP = 1e-3
FAR = 0.05  # how far, relative to the truth, a wrong formula misses it at least


def at(*f: float) -> Tensor:
    """Return f [K, 1]."""
    return torch.tensor(f, dtype=F64)[:, None]


def one(y: float) -> Tensor:
    return torch.tensor([y], dtype=F64)


def agrees(ours: Tensor | float, truth: float, theirs: float, tolerance: float = 1e-6) -> None:
    """Check that our number is the truth and that theirs is not."""
    assert float(ours) == pytest.approx(truth, rel=tolerance, abs=tolerance)
    assert abs(theirs - truth) > FAR * abs(truth)
    assert abs(theirs - truth) > 1000 * tolerance


def slope(of: Callable[[float], float], x: float) -> float:
    """Return a derivative by five-point differences."""
    near, far = of(x + STEP) - of(x - STEP), of(x + 2 * STEP) - of(x - 2 * STEP)
    return (8 * near - far) / (12 * STEP)


def quad(of: Callable[[float], float], low: float, high: float) -> float:
    return integrate.quad(of, low, high, epsabs=1e-11, epsrel=1e-11, limit=400)[0]


def crps_metric(
    cdf: Callable[..., float], f: list[float], k: int, low: float, high: float
) -> float:
    """Return 2 integral (dF/df_k)^2 dz for cdf(z, *f)."""

    def squared(z: float) -> float:
        return slope(lambda v: cdf(z, *f[:k], v, *f[k + 1 :]), f[k]) ** 2

    return 2 * quad(squared, low, high)


def crps(cdf: Callable[[float], float], y: float, low: float, high: float) -> float:
    """Return the integral of (F(z) - 1[z >= y])^2."""
    return quad(lambda z: cdf(z) ** 2, low, y) + quad(lambda z: (1 - cdf(z)) ** 2, y, high)


def normal_cdf(z: float, mu: float, log_noise: float) -> float:
    return float(special.ndtr((z - mu) * math.exp(-0.5 * log_noise)))


def log_normal_cdf(z: float, mu: float, log_noise: float) -> float:
    return normal_cdf(math.log(z), mu, log_noise) if z > 0 else 0.0


# -- slip 1: the metric of the CRPS of the normal family is sigma times the right one -------------


@pytest.mark.parametrize("k", [0, 1])
def test_slip_1_crps_metric_of_the_normal(k: int) -> None:
    f = [MU, 2 * math.log(S)]
    truth = crps_metric(normal_cdf, f, k, MU - 12, MU + 12)
    ours = Gaussian(noise=Predicted()).metric({}, at(*f), "crps")[0, k, k]
    agrees(ours, truth, S * truth)


@pytest.mark.parametrize("wide", [0.2, 20.0])
def test_slip_1_with_the_noise_known(wide: float) -> None:
    """A fixed variance has the same slip; the error is the factor sigma, large or small."""
    log_noise = 2 * math.log(wide)
    truth = crps_metric(
        lambda z, mu: normal_cdf(z, mu, log_noise), [MU], 0, MU - 12 * wide, MU + 12 * wide
    )
    ours = Gaussian(noise=wide**2).metric({}, at(MU), "crps")[0, 0, 0]
    assert float(ours) == pytest.approx(truth, rel=1e-6)
    assert abs(wide * truth - truth) > 0.5 * truth


def test_slip_1_in_the_log_normal() -> None:
    """Theirs is the metric of log y times sigma, for the CRPS of log y."""
    f = [MU, 2 * math.log(S)]
    for k in (0, 1):
        truth = crps_metric(log_normal_cdf, f, k, 1e-12, math.exp(MU + 12 * S))
        ours = float(LogNormal(noise=Predicted()).metric({}, at(*f), "crps")[0, k, k])
        assert ours == pytest.approx(truth, rel=1e-6)
        of_log_y = crps_metric(normal_cdf, f, k, MU - 12, MU + 12)
        for theirs in (S * of_log_y, S * truth):
            assert abs(theirs - truth) > FAR * truth


# -- slip 2: the slope of the Laplace CRPS by log b lacks -3b/4 ------------------------------------


@pytest.mark.parametrize("y", [-0.3, 1.3])
def test_slip_2_laplace_crps(y: float) -> None:
    def truth_at(log_b: float) -> float:
        law = stats.laplace(MU, math.exp(log_b))
        return crps(lambda z: float(law.cdf(z)), y, MU - 40, MU + 40)

    log_b = math.log(S)
    d = abs(y - MU)
    ours = Laplace(scale=Predicted()).gradient({}, at(MU, log_b), one(y), "crps")[1]
    agrees(ours, slope(truth_at, log_b), math.exp(-d / S) * (S + d), 1e-6)


# -- slip 3: observed and censored rows of the exponential CRPS are swapped, with a wrong slope ----


def test_slip_3_exponential_crps() -> None:
    """An observed row has the whole integral, and a censored one that below y."""
    y, log_s = 0.6, math.log(0.8)

    def cdf(z: float, log_scale: float) -> float:
        return -math.expm1(-z * math.exp(-log_scale))

    def whole(v: float) -> float:
        return crps(lambda z: cdf(z, v), y, 0.0, 60.0)

    def below(v: float) -> float:
        return quad(lambda z: cdf(z, v) ** 2, 0.0, y)

    ours = Exponential()
    agrees(ours.score({}, at(log_s), one(y), "crps"), whole(log_s), below(log_s))
    gradient = ours.gradient({}, at(log_s), one(y), "crps")
    agrees(gradient, slope(whole, log_s), slope(below, log_s))
    # the slope of the censored term, which is offered nowhere as it is not proper
    s, e = 0.8, math.exp(-0.6 / 0.8)
    observed = -1.5 * s + 2 * e * (s + y)
    right = observed - e**2 * (0.5 * s + y)
    assert right == pytest.approx(slope(below, log_s), rel=1e-6)
    wrong = observed - e**2 * (0.5 * s - y)
    assert abs(wrong - right) > FAR * abs(right)


# -- slip 4: the slope of the censored log score of the log-normal lacks the factor s --------------


@pytest.mark.parametrize("y", [0.9, 2.6])
def test_slip_4_log_normal_censored_log_score(y: float) -> None:
    log_noise = torch.tensor(2 * math.log(S), dtype=F64, requires_grad=True)
    z = (math.log(y) - MU) / (0.5 * log_noise).exp()
    (truth,) = torch.autograd.grad(-torch.special.log_ndtr(-z), log_noise)
    law = LogNormal(noise=Predicted())
    f = at(MU, float(log_noise.detach()))
    ours = law.gradient({}, f, one(y), right_censored=torch.tensor([True]))[1]
    assert float(ours) == pytest.approx(float(truth), rel=1e-9)
    assert abs(float(truth) / S - float(truth)) > FAR * abs(float(truth))


# -- slip 5: the slope of the censored CRPS of the log-normal by mu is not -Phi^2 ------------------


def test_slip_5_log_normal_censored_crps() -> None:
    """The score on the scale of log y is no loss of ours, as it is not proper."""
    y, log_s = 2.6, math.log(S)
    z = (math.log(y) - MU) / S

    def below(mu: float) -> float:
        return quad(lambda t: float(special.ndtr((t - mu) / S)) ** 2, mu - 14, math.log(y))

    Phi = float(special.ndtr(z))
    truth = slope(below, MU)
    assert -(Phi**2) == pytest.approx(truth, rel=1e-6)
    for theirs in (1 - 2 * Phi, -2 * Phi, Phi**2):  # as for a row that is observed, or another sign
        assert abs(theirs - truth) > FAR * abs(truth)

    def law_of(log_scale: float) -> float:
        s = math.exp(log_scale)
        return quad(lambda t: float(special.ndtr((t - MU) / s)) ** 2, MU - 14, math.log(y))

    phi = math.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    by_log_s = S * (2 * Phi * phi - float(special.ndtr(math.sqrt(2) * z)) / math.sqrt(math.pi))
    assert by_log_s == pytest.approx(slope(law_of, log_s), rel=1e-6)


# -- slip 6: the Fisher information of log s of Student's t is 1/(4 s^2) times the right one -------


@pytest.mark.parametrize("df", [3.0, 5.0, 30.0])
def test_slip_6_student_fisher(df: float) -> None:
    law = StudentT(df=df, scale=Predicted())
    f = at(MU, math.log(S))

    def squared(t: float) -> float:  # y = mu + sinh t
        y = one(MU + math.sinh(t))
        g = float(law.gradient({}, f, y)[1])
        return g**2 * math.exp(-float(law.score({}, f, y))) * math.cosh(t)

    truth = quad(squared, -20.0, 20.0)
    agrees(law.metric({}, f)[0, 1, 1], truth, truth / (4 * S**2))


# -- slip 7: the marginal start of survival fits ignores censoring ---------------------------------


LAWS: dict[str, Scored] = {
    "exponential": Exponential(),
    "log-normal": LogNormal(noise=Predicted()),
}


@pytest.mark.parametrize("name", list(LAWS))
def test_slip_7_marginal_start(name: str) -> None:
    """The start is the minimum of the censored log score, found here by SciPy alone."""
    rng = np.random.default_rng(0)
    y, limit = rng.lognormal(0.5, 0.7, 400), rng.exponential(2.0, 400)
    flags = y > limit
    y = np.minimum(y, limit)

    def total(f: np.ndarray) -> float:
        law = (
            stats.expon(scale=math.exp(f[0]))
            if name == "exponential"
            else stats.lognorm(math.exp(0.5 * f[-1]), scale=math.exp(f[0]))
        )
        return -float(np.where(flags, law.logsf(y), law.logpdf(y)).mean())

    law = LAWS[name]
    K = len(law._coordinates())
    truth = optimize.minimize(total, np.zeros(K), method="Nelder-Mead", options={"xatol": 1e-9}).x
    times = torch.from_numpy(y)
    ours = law.initial(times, right_censored=torch.from_numpy(flags))
    theirs = law.initial(times)
    np.testing.assert_allclose(ours.numpy(), truth, rtol=1e-4, atol=1e-4)
    assert float((theirs - torch.from_numpy(truth)).abs().max()) > 0.2
    if name == "exponential":  # total time per event, not the mean of y
        assert float(ours.exp()) == pytest.approx(y.sum() / (~flags).sum(), rel=1e-9)


# -- slip 8: laws without a closed form estimate the Fisher information from 100 random draws ------


def test_slip_8_fisher_by_random_draws() -> None:
    """64 quantiles are exact to 1e-6 where 100 draws miss by a fifth, and anew at each call."""
    law = FromDistribution(
        lambda f: torch.distributions.Normal(f[..., 0, :], (0.5 * f[..., 1, :]).exp()), 2
    )
    n = 50
    f = at(MU, 2 * math.log(S)).expand(-1, n)
    exact = torch.diag(torch.tensor([1 / S**2, 0.5], dtype=F64))
    assert torch.equal(law.metric({}, f), law.metric({}, f))
    torch.testing.assert_close(law.metric({}, f), exact.expand(n, 2, 2), rtol=1e-6, atol=1e-8)
    g = torch.Generator().manual_seed(0)
    y = MU + S * torch.randn(100, n, generator=g, dtype=F64)
    slopes = torch.stack([law.gradient({}, f, row) for row in y])
    theirs = torch.einsum("din,djn->nij", slopes, slopes) / len(y)
    wrong = (theirs[:, 1, 1] / exact[1, 1] - 1).abs()
    assert float(wrong.mean()) > 0.1
    free = StudentT(df=Predicted(), scale=Predicted())
    f3 = at(MU, math.log(6.0), math.log(S))
    assert torch.equal(free.metric({}, f3), free.metric({}, f3))
