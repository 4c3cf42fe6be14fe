"""Averages over f of distributions that are narrow given f, compared with panels around them."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import special, stats

from ppgp.distributions import mixture, univariate
from ppgp.likelihoods import (
    Beta,
    Binomial,
    FromDistribution,
    Gaussian,
    NegativeBinomial,
    Predicted,
    ZeroInflated,
)
from ppgp.numerics.gaussian_nodes import find_peak

F64 = torch.float64
MEAN = 0.7
SDS = (0.3, 1.0, 3.0)
PLACES = (-2.0, -0.7, 0.0, 1.1, 2.0)  # in sds of f
NUMBERS = (1.0, 100.0, 1e4)  # precisions, shapes, trials and inverse scales


def location_scale(family: Any) -> Any:
    """Return the likelihood of a family at f with scale 1 / number."""

    def of(number: float) -> FromDistribution:
        return FromDistribution(lambda f: family(f[..., 0, :], torch.tensor(1 / number, dtype=F64)))

    return of


LAWS: dict[str, Any] = {
    "beta": Beta,
    "negative binomial": NegativeBinomial,
    "binomial": Binomial,
    "student": location_scale(lambda loc, scale: dist.StudentT(4.0, loc, scale)),
    "gumbel": location_scale(dist.Gumbel),
}
COUNTS = ("negative binomial", "binomial")


def given(name: str, number: Any, f: np.ndarray) -> Any:
    """Return SciPy's distribution of y given f."""
    up, down = special.expit(f), special.expit(-f)
    return {
        "beta": lambda: stats.beta(number * up, number * down),
        "negative binomial": lambda: stats.nbinom(number, number / (number + np.exp(f))),
        "binomial": lambda: stats.binom(number, up),
        "student": lambda: stats.t(4.0, f, 1 / number),
        "gumbel": lambda: stats.gumbel_r(f, 1 / number),
    }[name]()


def value(name: str, number: float, f: float) -> float:
    """Return a value of y that f makes likely."""
    if name == "beta":
        return float(special.expit(f))
    if name == "binomial":
        return round(number * float(special.expit(f)))
    if name == "negative binomial":
        return round(math.exp(f))
    return f + 0.3 / number


def panels(sd: float, near: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes of f and weights that include its density, for narrow factors near a place."""
    apart = 3e-6 * 1.7 ** np.arange(40)
    ends = np.concatenate(
        [MEAN + sd * np.arange(-11, 11.1, 0.5), [near], near - apart, near + apart]
    )
    ends = np.unique(ends[np.abs(ends - MEAN) <= 11 * sd])
    x, w = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(ends)[:, None]
    f = (ends[:-1, None] + half * (1 + x)).ravel()
    return f, (half * w).ravel() * stats.norm.pdf(f, MEAN, sd)


def figures(law: Any, name: str, y: float) -> np.ndarray:
    """Return the density, or the mass, and the cdf, [2, f]."""
    with np.errstate(all="ignore"):
        density = law.pmf(y) if name in COUNTS else law.pdf(y)
        return np.nan_to_num(np.stack([density, law.cdf(y)]))


def near_of(name: str, number: float, y: float, f: float) -> float:
    """Return f at which y is likeliest."""
    if name == "binomial":
        return float(special.logit((y + 0.5) / (number + 1)))
    if name == "negative binomial":
        return math.log(y + 0.5)
    return f


def check(found: Any, y: float, exact: np.ndarray, rel: float = 1e-7) -> None:
    at = torch.tensor([y], dtype=F64)
    density, cdf = univariate.log_prob(found, at).exp(), univariate.cdf(found, at)
    assert float(density) == pytest.approx(exact[0], rel=rel), y
    assert float(cdf) == pytest.approx(exact[1], rel=rel), y


def average(law: Any, means: list[float], sds: list[float]) -> Any:
    """Return the distribution of y for functions of these means and sds."""
    shape = (len(means), 1) if len(means) > 1 else (1,)
    mean, sd = (torch.tensor(x, dtype=F64).reshape(shape) for x in (means, sds))
    return law.marginal({}, mean, sd.square())


@pytest.mark.parametrize(("name", "number", "sd"), list(product(LAWS, NUMBERS, SDS)))
def test_the_average_is_the_integral(name: str, number: float, sd: float) -> None:
    found = average(LAWS[name](number), [MEAN], [sd])
    for place in PLACES:
        y = value(name, number, MEAN + sd * place)
        f, weights = panels(sd, near_of(name, number, y, MEAN + sd * place))
        exact = figures(given(name, number, f), name, y) @ weights
        check(found, y, exact, rel=2e-7)


TWO: dict[str, Any] = {
    "beta": Beta(precision=Predicted()),
    "negative binomial": NegativeBinomial(shape=Predicted()),
    "student": FromDistribution(
        lambda f: dist.StudentT(4.0, f[..., 0, :], torch.exp(-f[..., 1, :])), 2
    ),
}


@pytest.mark.parametrize("own", [0.3, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "number", "sd"), list(product(TWO, (100.0, 1e4), (1.0, 3.0))))
def test_the_average_over_two_functions_is_the_integral(
    name: str, number: float, sd: float, own: float
) -> None:
    found = average(TWO[name], [MEAN, math.log(number)], [sd, own])
    t = np.linspace(-6.4, 6.4, 33)  # 81 nodes in [-8, 8] agree to 3e-11
    share = np.exp(-0.5 * t**2)
    for place in (-0.7, 1.1):
        y = value(name, number, MEAN + sd * place)
        f, weights = panels(sd, near_of(name, number, y, MEAN + sd * place))
        each = [figures(given(name, number * math.exp(own * x), f), name, y) @ weights for x in t]
        check(found, y, share @ np.stack(each) / share.sum(), rel=3e-6)


@pytest.mark.parametrize("number", [3.0, 1e3])
@pytest.mark.parametrize("sd", [0.3, 3.0])
@pytest.mark.parametrize("y", [0.0, 1.0, 40.0])
def test_counts_with_more_zeros(y: float, sd: float, number: float) -> None:
    found = average(ZeroInflated(NegativeBinomial(number), 0.2), [MEAN], [sd])
    f, weights = panels(sd, math.log(y + 0.5))
    exact = 0.8 * figures(given("negative binomial", number, f), "negative binomial", y) @ weights
    check(found, y, exact + 0.2 * np.array([y == 0, 1]))


@pytest.mark.parametrize("sd", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("variance", [1e-8, 1.0])
def test_a_predicted_noise(variance: float, sd: float) -> None:
    """Of the log of the noise with this sd; the cdf is above 1e-6."""
    found = average(Gaussian(noise=Predicted()), [MEAN, 0.4], [variance**0.5, sd])
    t = np.linspace(-13, 13, 20_001)
    weights = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()
    law = stats.norm(MEAN, np.sqrt(variance + np.exp(0.4 + sd * t)))
    for y in (MEAN, MEAN + 0.01, MEAN - 0.5, MEAN + 3.0, MEAN + 20.0):
        check(found, y, figures(law, "gaussian", y) @ weights, rel=1e-9)


@pytest.mark.parametrize("name", ["beta", "negative binomial", "student"])
def test_quantiles_invert_the_integral(name: str) -> None:
    number, sd = 300.0, 1.5
    found = average(LAWS[name](number), [MEAN], [sd])
    p = torch.tensor([0.02, 0.5, 0.97], dtype=F64)
    for share in p.tolist():
        y = float(mixture.quantile(found.expand((1, 1)), share))
        f = MEAN if name != "negative binomial" else near_of(name, number, y, 0.0)
        if name == "beta":
            f = float(special.logit(y))
        if name == "student":
            f = y
        nodes, weights = panels(sd, f)
        exact = figures(given(name, number, nodes), name, y) @ weights
        if name in COUNTS:
            assert exact[1] - exact[0] < share <= exact[1]
        else:
            assert exact[1] == pytest.approx(share, abs=1e-9)


def test_the_log_density_of_a_value_far_from_f() -> None:
    for place in (-40.0, -15.0, 11.5, 25.0):
        found = average(location_scale(dist.Normal)(100.0), [MEAN], [0.3])
        y = MEAN + 0.3 * place
        exact = stats.norm.logpdf(y, MEAN, math.hypot(0.3, 0.01))
        assert float(found.log_prob(torch.tensor([y], dtype=F64))) == pytest.approx(exact, rel=1e-9)


def test_values_outside_the_support() -> None:
    found = average(Beta(1e3), [MEAN], [2.0])
    at = torch.tensor([[-1.0], [0.0], [1.0], [2.0]], dtype=F64)
    assert univariate.cdf(found, at)[:, 0].tolist() == pytest.approx([0, 0, 1, 1], abs=1e-12)
    assert univariate.log_prob(found, at[[0, 3]])[:, 0].tolist() == [-math.inf, -math.inf]
    found = average(NegativeBinomial(1e3), [MEAN], [2.0])
    assert float(univariate.cdf(found, at[0])) == 0.0
    whole = univariate.cdf(found, torch.tensor([[3.0], [3.9]], dtype=F64))[:, 0]
    assert float(whole[0]) == float(whole[1])


def test_derivatives() -> None:
    y = torch.tensor([0.2, 0.8], dtype=F64)

    def log_density(mean: Any, variance: Any) -> Any:
        return Beta(200.0).marginal({}, mean, variance).log_prob(y)

    at = (torch.tensor([0.3, -1.0], dtype=F64), torch.tensor([0.5, 4.0], dtype=F64))
    inputs = tuple(x.requires_grad_() for x in at)
    assert torch.autograd.gradcheck(log_density, inputs, eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("width", [1e-6, 1e-3, 0.1, 1.0, 30.0])
def test_the_peak_is_found(width: float) -> None:
    centre = torch.tensor([-3.0, 0.123456, 20.0], dtype=F64)
    peak = find_peak(lambda z: -0.5 * ((z - centre) / width) ** 2, centre)
    exact = centre / (1 + width**2)
    own = (1 + width**-2) ** -0.5
    torch.testing.assert_close(peak.centre, exact, rtol=0, atol=0.5 * own)
    assert bool((peak.width < 2.5 * own).all() and (peak.width > own / 8).all())
    for end, side in ((peak.lowest, -1), (peak.highest, 1)):
        reach = side * (end - exact) / own
        assert bool((reach > 9).all())
        assert bool((reach < 40).all())
