"""A gamma power times a log-normal, compared with fine sums over f for any ratio of widths."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ppgp.distributions import mixture
from ppgp.distributions.gamma_times_log_normal import GammaTimesLogNormal
from ppgp.likelihoods import Exponential, Gamma, Likelihood, Predicted, Weibull
from ppgp.runtime.seeding import seeded

F64 = torch.float64
LAWS: dict[str, Likelihood] = {
    "exponential": Exponential(),
    **{f"gamma {a:g}": Gamma(shape=a) for a in (0.3, 3.0, 10.0, 100.0, 1000.0)},
    **{f"weibull {k:g}": Weibull(shape=k) for k in (0.5, 1.5, 5.0, 20.0)},
}
VARIANCES = (1e-6, 0.04, 1.0, 4.0, 100.0)
PLACES = (-2.0, -0.7, 0.0, 1.1, 2.0)  # in sds of f
CASES = list(product(LAWS, VARIANCES))
MEAN = 0.3
each = pytest.mark.parametrize(("name", "variance"), CASES)


def given(name: str, f: np.ndarray) -> Any:
    """Return SciPy's distribution of y given f."""
    kind, _, number = name.partition(" ")
    if kind == "gamma":
        shape = float(number)
        return stats.gamma(shape, scale=np.exp(f) / shape)
    return stats.weibull_min(float(number or 1.0), scale=np.exp(f))


def averaged(name: str, variance: float, of: Any) -> float:
    """Return the log of E exp(of(distribution given f)) by a sum over 20,001 values of f.

    Two of them are less than half a standard deviation apart where a factor is narrowest, as a
    shape of 1000 and a variance of 100 make it. The error of such a sum of a smooth function is far
    below rounding (Trefethen and Weideman, 2014).
    """
    z = np.linspace(-14, 14, 20_001)
    with np.errstate(all="ignore"):
        logs = of(given(name, MEAN + math.sqrt(variance) * z)) - 0.5 * z**2
    return float(special.logsumexp(logs) + math.log((z[1] - z[0]) / math.sqrt(2 * math.pi)))


def law_of(name: str, variance: float) -> Any:
    one = torch.ones(1, dtype=F64)
    return LAWS[name].marginal({}, MEAN * one, variance * one)


def values(name: str, variance: float) -> list[float]:
    """Return numbers up to two sds of f from its mean, or of y if f is nearly certain."""
    own = {"gamma": 0.5, "weibull": 1.0}.get(name.partition(" ")[0], 1.0)
    number = float(name.partition(" ")[2] or 1.0)
    width = math.hypot(math.sqrt(variance), number**-own)
    return [math.exp(MEAN + place * width) for place in PLACES]


@each
def test_the_log_density_is_the_integral(name: str, variance: float) -> None:
    for y in values(name, variance):
        exact = averaged(name, variance, lambda law, y=y: law.logpdf(y))
        found = float(law_of(name, variance).log_prob(torch.tensor([y], dtype=F64)))
        assert found == pytest.approx(exact, rel=1e-7, abs=1e-7), y


@each
def test_the_tails_are_the_integrals(name: str, variance: float) -> None:
    for y in values(name, variance):
        below, above = law_of(name, variance).log_tails(torch.tensor([y], dtype=F64))
        for found, of in ((below, "logcdf"), (above, "logsf")):
            exact = averaged(name, variance, lambda law, y=y, of=of: getattr(law, of)(y))
            assert float(found) == pytest.approx(exact, rel=1e-5, abs=1e-7), (y, of)


@pytest.mark.parametrize(("name", "variance"), [c for c in CASES if c[1] < 100])
def test_quantiles_invert_the_integral(name: str, variance: float) -> None:
    law = law_of(name, variance)
    one = GammaTimesLogNormal(*(getattr(law, n)[None] for n in law.arg_constraints))
    for p in (0.05, 0.5, 0.9):
        y = float(mixture.quantile(one, p))
        exact = averaged(name, variance, lambda law, y=y: law.logcdf(y))
        assert math.exp(exact) == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize(("name", "variance"), [c for c in CASES if c[1] < 100])
def test_moments_are_the_integrals(name: str, variance: float) -> None:
    law = law_of(name, variance)
    first = averaged(name, variance, lambda d: np.log(d.mean()))
    second = averaged(name, variance, lambda d: np.log(d.var() + d.mean() ** 2))
    assert float(law.mean) == pytest.approx(math.exp(first), rel=1e-9)
    exact = math.exp(second) - math.exp(2 * first)
    assert float(law.variance) == pytest.approx(exact, rel=1e-6)


def test_the_log_density_far_from_f() -> None:
    for name, y in (("gamma 100", -30.0), ("weibull 5", 12.0), ("gamma 0.3", -60.0)):
        exact = averaged(name, 4.0, lambda law, y=y: law.logpdf(math.exp(y)))
        found = law_of(name, 4.0).log_prob(torch.tensor([math.exp(y)], dtype=F64))
        if abs(y - MEAN) < 24:  # within the sum over f
            assert float(found) == pytest.approx(exact, rel=1e-7)
        assert bool(torch.isfinite(found).all())


def test_an_average_over_a_predicted_shape_uses_it() -> None:
    """Against a sum over the log shape of densities that are averaged over f one by one."""
    mean, variance = (torch.tensor([[a], [b]], dtype=F64) for a, b in ((MEAN, 4.0), (1.0, 0.04)))
    y = torch.tensor([2.5], dtype=F64)
    found = Gamma(shape=Predicted()).marginal({}, mean, variance).log_prob(y)
    z = np.linspace(-8, 8, 401)
    logs = [
        float(Gamma(shape=math.exp(4.0 + 0.2 * t)).marginal({}, mean[0], variance[0]).log_prob(y))
        for t in z
    ]
    exact = special.logsumexp(np.array(logs) - 0.5 * z**2) + math.log(z[1] - z[0])
    assert float(found) == pytest.approx(exact - 0.5 * math.log(2 * math.pi), abs=1e-6)


def test_draws_follow_the_tails() -> None:
    law = law_of("gamma 3", 0.5)
    with seeded(0):
        draws = law.sample((4000,))
    assert draws.shape == (4000, 1)
    assert stats.kstest(law.cdf(draws)[:, 0].numpy(), "uniform").pvalue > 0.01
    ends = law.cdf(torch.tensor([[1e-300], [1e300], [math.inf]], dtype=F64))[:, 0]
    assert ends.tolist() == pytest.approx([0.0, 1.0, 1.0], abs=1e-12)


def test_derivatives() -> None:
    cases = [(3.0, 1.0, 0.0, 0.4), (100.0, 1.0, 0.3, 1.0), (1.0, 20.0, -1.0, 2.0), (0.3, 1.0, 0, 9)]
    columns = list(torch.tensor(cases, dtype=F64).mT)
    y = torch.tensor([0.5, 3.0, 0.02, 1.7], dtype=F64)

    def value(*parts: Tensor) -> Tensor:
        return GammaTimesLogNormal(*parts, validate_args=False).log_prob(y)

    inputs = tuple(x.clone().requires_grad_() for x in columns)
    assert torch.autograd.gradcheck(value, inputs, eps=1e-6, atol=1e-4, rtol=1e-4)
    traced = make_fx(value)(*columns)
    other = [x * 1.3 for x in columns]
    torch.testing.assert_close(traced(*other), value(*other))


def test_single_precision_is_close_to_double() -> None:
    y = torch.tensor([0.2, 1.0, 7.0], dtype=F64)
    for name in LAWS:
        ones = torch.ones(3, dtype=F64)
        double = LAWS[name].marginal({}, MEAN * ones, ones)
        single = LAWS[name].marginal({}, MEAN * ones.float(), ones.float())
        torch.testing.assert_close(
            single.log_prob(y.float()).double(), double.log_prob(y), rtol=1e-3, atol=1e-3
        )
        torch.testing.assert_close(
            single.cdf(y.float()).double(), double.cdf(y), rtol=1e-3, atol=1e-5
        )
