"""Slopes of row log densities in each function, against autograd and against 60 digits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import mpmath as mp
import pytest
import torch
from torch import Tensor

from ppgp.likelihoods import (
    AsymmetricLaplace,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Exponential,
    FromDistribution,
    Gamma,
    Gaussian,
    Laplace,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Predicted,
    Scored,
    StudentT,
    Weibull,
    ZeroInflated,
)

F64 = torch.float64
CUTS = (-1.3, 0.2, 2.1)
BASE: dict[str, Scored] = {
    "gaussian": Gaussian(noise=Predicted()),
    "log-normal": LogNormal(noise=Predicted()),
    "laplace": Laplace(scale=Predicted()),
    "asymmetric laplace": AsymmetricLaplace(0.8, scale=Predicted()),
    "student": StudentT(df=Predicted(), scale=Predicted()),
    "gamma": Gamma(shape=Predicted()),
    "gamma, inverse": Gamma(shape=Predicted(), link="inverse"),
    "weibull": Weibull(shape=Predicted()),
    "exponential": Exponential(),
    "poisson": Poisson(),
    "negative binomial": NegativeBinomial(shape=Predicted()),
    "beta": Beta(precision=Predicted()),
    "binomial": Binomial(trials=9),
    "bernoulli": Bernoulli(),
    "probit": Bernoulli("probit"),
    "categorical": Categorical(3),
    "ordinal": Ordinal(cutpoints=CUTS),
    "ordinal, probit": Ordinal("probit", CUTS),
    "ordinal, cloglog": Ordinal("cloglog", CUTS),
    "zero-inflated": ZeroInflated(Poisson(), Predicted()),
    "zero-inflated, all": ZeroInflated(NegativeBinomial(Predicted()), Predicted()),
}
COUNTS = (0.0, 1.0, 7.0, 400.0)
POSITIVE = (1e-3, 0.7, 25.0)
REAL = (-8.0, 0.3, 29.0)
CODES = (0.0, 1.0, 2.0)
TARGETS: dict[str, tuple[float, ...]] = {
    "gaussian": REAL,
    "laplace": REAL,
    "asymmetric laplace": REAL,
    "student": REAL,
    "poisson": COUNTS,
    "negative binomial": COUNTS,
    "beta": (1e-6, 0.2, 0.93),
    "binomial": (0.0, 1.0, 7.0, 9.0),
    "bernoulli": CODES[:2],
    "probit": CODES[:2],
    "categorical": CODES,
    "ordinal": (*CODES, 3.0),
    "ordinal, probit": (*CODES, 3.0),
    "ordinal, cloglog": (*CODES, 3.0),
    "zero-inflated": COUNTS,
    "zero-inflated, all": COUNTS,
}
FIRST = (-30.0, -17.3, -5.1, -1.2, 0.1, 0.9, 3.3, 11.0, 30.0)
OTHERS = (-2.2, 0.4, 3.7)
SHAPES = (*OTHERS, 9.0, 25.0)  # of counts and shares, whose variance has a limit
GATES = (-30.0, -1.1, 2.5)
each = pytest.mark.parametrize("name", list(BASE))


def grid(name: str) -> tuple[Tensor, Tensor]:
    """Return f [K, n] and y [n], every combination of the numbers above."""
    K = len(BASE[name]._coordinates())
    axes: list[tuple[float, ...]] = [FIRST] + [OTHERS] * (K - 1)
    if name in ("negative binomial", "beta"):
        axes[1] = SHAPES
    if name.startswith("zero-inflated"):
        axes[-1] = GATES
    if name == "weibull":
        axes[1] = (-2.2, 0.4, 1.5)  # a higher power overflows
    if name == "categorical":
        axes = [FIRST, OTHERS, (-30.0, 0.7)]
    if name == "gamma, inverse":
        axes[0] = (1e-4, 0.3, 2.0, 30.0)
    rows = list(product(*axes, TARGETS.get(name, POSITIVE)))
    table = torch.tensor(rows, dtype=F64).mT
    return table[:-1].contiguous(), table[-1]


# -- the log densities, by their textbook formulas ------------------------------------------------


def gaussian(f: Any, g: Any, y: Any) -> Any:
    return -(mp.log(2 * mp.pi) + g + (y - f) ** 2 / mp.exp(g)) / 2


def asymmetric_laplace(f: Any, g: Any, y: Any, q: Any) -> Any:
    """Yu & Moyeed (2001), equation 3."""
    u = (y - f) / mp.exp(g)
    return mp.log(q * (1 - q)) - g - max(q * u, (q - 1) * u)


def student(f: Any, log_df: Any, log_s: Any, y: Any) -> Any:
    df, z = mp.exp(log_df), (y - f) / mp.exp(log_s)
    constant = mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2) - mp.log(df * mp.pi) / 2
    return constant - log_s - (df + 1) / 2 * mp.log(1 + z**2 / df)


def gamma_of(log_mean: Any, log_a: Any, y: Any) -> Any:
    a = mp.exp(log_a)
    rate = a * mp.exp(-log_mean)
    return a * mp.log(rate) - mp.loggamma(a) + (a - 1) * mp.log(y) - rate * y


def weibull(f: Any, log_k: Any, y: Any) -> Any:
    k, r = mp.exp(log_k), y / mp.exp(f)
    return mp.log(k / y) + k * mp.log(r) - r**k


def poisson(f: Any, y: Any) -> Any:
    return y * f - mp.exp(f) - mp.loggamma(y + 1)


def negative_binomial(f: Any, log_t: Any, y: Any) -> Any:
    t, mu = mp.exp(log_t), mp.exp(f)
    constant = mp.loggamma(y + t) - mp.loggamma(t) - mp.loggamma(y + 1)
    return constant + t * log_t + y * f - (y + t) * mp.log(t + mu)


def beta(f: Any, log_precision: Any, y: Any) -> Any:
    a, b = (mp.exp(log_precision) / (1 + mp.exp(s)) for s in (-f, f))
    constant = mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b)
    return constant + (a - 1) * mp.log(y) + (b - 1) * mp.log(1 - y)


def binomial(f: Any, y: Any) -> Any:
    return mp.log(mp.binomial(9, y)) + y * f - 9 * mp.log(1 + mp.exp(f))


def ordinal(survival: Callable[[Any], Any], cdf: Callable[[Any], Any]) -> Callable[..., Any]:
    def log_mass(f: Any, y: Any) -> Any:
        k, z = int(y), [mp.mpf(c) - f for c in CUTS]
        if k == 0:
            return mp.log(cdf(z[0]))
        if k == len(CUTS):
            return mp.log(survival(z[-1]))
        if z[k - 1] > 0:
            return mp.log(survival(z[k - 1]) - survival(z[k]))
        return mp.log(cdf(z[k]) - cdf(z[k - 1]))

    return log_mass


def zero_inflated(counts: Callable[..., Any]) -> Callable[..., Any]:
    def log_mass(*values: Any) -> Any:
        *own, gate, y = values
        share, one = 1 / (1 + mp.exp(-gate)), counts(*own, y)
        if y == 0:
            return mp.log(share + (1 - share) * mp.exp(one))
        return mp.log(1 - share) + one

    return log_mass


REFERENCE: dict[str, Callable[..., Any]] = {
    "gaussian": gaussian,
    "log-normal": lambda f, g, y: gaussian(f, g, mp.log(y)) - mp.log(y),
    "laplace": lambda f, g, y: -mp.log(2) - g - abs(y - f) / mp.exp(g),
    "asymmetric laplace": lambda f, g, y: asymmetric_laplace(f, g, y, mp.mpf(0.8)),
    "student": student,
    "gamma": gamma_of,
    "gamma, inverse": lambda f, g, y: gamma_of(-mp.log(f), g, y),
    "weibull": weibull,
    "exponential": lambda f, y: -f - y * mp.exp(-f),
    "poisson": poisson,
    "negative binomial": negative_binomial,
    "beta": beta,
    "binomial": binomial,
    "bernoulli": lambda f, y: -mp.log(1 + mp.exp((1 - 2 * y) * f)),
    "probit": lambda f, y: mp.log(mp.ncdf((2 * y - 1) * f)),
    "categorical": lambda a, b, c, y: (a, b, c)[int(y)] - mp.log(mp.exp(a) + mp.exp(b) + mp.exp(c)),
    "ordinal": ordinal(lambda z: 1 / (1 + mp.exp(z)), lambda z: 1 / (1 + mp.exp(-z))),
    "ordinal, probit": ordinal(lambda z: mp.ncdf(-z), mp.ncdf),
    "ordinal, cloglog": ordinal(lambda z: mp.exp(-mp.exp(z)), lambda z: 1 - mp.exp(-mp.exp(z))),
    "zero-inflated": zero_inflated(poisson),
    "zero-inflated, all": zero_inflated(negative_binomial),
}


@each
def test_slopes_are_those_of_sixty_digits(name: str) -> None:
    law, of = BASE[name], REFERENCE[name]
    f, y = grid(name)
    first, second = law.slopes({}, f, y)
    assert first.shape == second.shape == f.shape
    exact = torch.empty(2, *f.shape, dtype=F64)
    with mp.workdps(60):
        for i in range(f.shape[1]):
            at = [mp.mpf(v) for v in f[:, i].tolist()]
            target = mp.mpf(float(y[i]))
            for k in range(len(at)):

                def along(x: Any, k: int = k, at: Any = at, target: Any = target) -> Any:
                    return of(*at[:k], x, *at[k + 1 :], target)

                for order in (1, 2):
                    exact[order - 1, k, i] = float(mp.diff(along, at[k], order))
    torch.testing.assert_close(first, exact[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(second, exact[1], rtol=1e-10, atol=1e-12)


@each
def test_log_densities_are_those_of_sixty_digits(name: str) -> None:
    law, of = BASE[name], REFERENCE[name]
    f, y = grid(name)
    with mp.workdps(60):
        values = zip(*f.tolist(), y.tolist(), strict=True)
        exact = torch.tensor([float(of(*map(mp.mpf, row))) for row in values], dtype=F64)
    torch.testing.assert_close(law.score({}, f, y), -exact, rtol=1e-11, atol=1e-11)


@each
def test_slopes_are_those_of_autograd(name: str) -> None:
    """Of the second slopes only that of f: torch's trigamma has a relative error of 1e-9.

    That of shares has trigamma functions in f too, and autograd loses digits of their first slope
    at a precision of e^25 beside a mean of 1e-13.
    """
    law = BASE[name]
    f, y = grid(name)
    if name == "beta":
        f, y = f[:, f[1] < 20], y[f[1] < 20]
    at = f.clone().requires_grad_()
    (g,) = torch.autograd.grad(-law.score({}, at, y).sum(), at, create_graph=True)
    first, second = law.slopes({}, f, y)
    torch.testing.assert_close(first, g.detach(), rtol=1e-10, atol=1e-10)
    if not g.requires_grad or name == "beta":
        return
    (h,) = torch.autograd.grad(g[0].sum(), at)
    torch.testing.assert_close(second[0], h[0], rtol=1e-10, atol=1e-10)


@each
def test_the_gradient_of_the_log_score_is_minus_the_first_slope(name: str) -> None:
    law = BASE[name]
    f, y = grid(name)
    assert torch.equal(law.slopes({}, f, y)[0], -law.gradient({}, f, y))


@each
def test_draws_are_a_leading_axis(name: str) -> None:
    law = BASE[name]
    f, y = grid(name)
    both = law.slopes({}, torch.stack([f, f.flip(0) if name == "categorical" else f]), y)
    for stacked, one in zip(both, law.slopes({}, f, y), strict=True):
        assert stacked.shape == (2, *f.shape)
        torch.testing.assert_close(stacked[0], one)


def test_a_distribution_from_elsewhere_has_slopes_by_autograd() -> None:
    law = FromDistribution(
        lambda f: torch.distributions.Normal(f[..., 0, :], (0.5 * f[..., 1, :]).exp()), 2
    )
    g = torch.Generator().manual_seed(0)
    f, y = torch.randn(3, 2, 5, generator=g, dtype=F64), torch.randn(5, generator=g, dtype=F64)
    ours, closed = law.slopes({}, f, y), BASE["gaussian"].slopes({}, f, y)
    for one, other in zip(ours, closed, strict=True):
        torch.testing.assert_close(one, other)
