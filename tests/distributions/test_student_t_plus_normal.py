"""Student-t plus Gaussian, compared with adaptive quadrature for any ratio of widths."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ppgp.distributions.student_t_plus_normal import StudentTPlusNormal, expected_log_density
from ppgp.kernels import RBF
from ppgp.likelihoods import StudentT
from ppgp.models import SVGP

F64 = torch.float64
DF = (0.7, 4.0, 40.0, 1000.0)
SD = (0.0, 0.03, 1.0, 20.0, 1000.0)  # of f, in scales of the noise
FAR = (0.0, 4.0, 60.0, 3000.0)  # from the mean, in scales of the noise
CASES = list(product(DF, SD, FAR))


def law_of(parts: list[Tensor]) -> StudentTPlusNormal:
    df, loc, scale, spread = parts
    return StudentTPlusNormal(df, loc, scale, spread)


def log_t(z: float, df: float) -> float:
    half = 0.5 * (df + 1)
    constant = math.lgamma(half) - math.lgamma(0.5 * df) - 0.5 * math.log(math.pi * df)
    return constant - half * math.log1p(z * z / df)


def log_normal(z: float, sd: float) -> float:
    return -0.5 * (z / sd) ** 2 - math.log(sd) - 0.5 * math.log(2 * math.pi)


def columns(cases: list[tuple[float, ...]] = CASES) -> list[Tensor]:
    return list(torch.tensor(cases, dtype=F64).mT)


def modes(df: float, sd: float, far: float) -> list[float]:
    """Return the modes of f given y = far, from the roots of a cubic."""
    v = sd**2
    roots = np.roots([1.0, -far, df + (df + 1) * v, -far * df])
    return [far - float(r.real) for r in roots if abs(r.imag) <= 1e-6 * (1 + abs(r))]


def breaks(df: float, sd: float, far: float) -> list[float]:
    """Return points between which the integrand in f is smooth."""
    centres = [(0.0, sd), (far, 1.0), (far, math.sqrt(df))] + [
        (m, min(1.0, sd)) for m in modes(df, sd, far)
    ]
    steps = (-10, -3, 0, 3, 10)
    found = sorted(
        {c + k * w for c, w in centres for k in steps}
        | {c + k * sd for c, _ in centres for k in (-40, 40)}
    )
    return found


def by_quadrature(integrand: Any, ends: list[float]) -> float:
    return sum(
        integrate.quad(integrand, a, b, epsabs=0, epsrel=1e-9, limit=100)[0]
        for a, b in pairwise(ends)
        if b > a
    )


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_the_expected_log_density_is_the_integral() -> None:
    df, sd, far = columns()
    found = expected_log_density(df, torch.ones_like(df), torch.zeros_like(df), sd.square(), far)
    for (d, s, y), ours in zip(CASES, found.tolist(), strict=True):
        if s == 0:
            expected = log_t(y, d)
        else:
            ends = [e for e in breaks(d, s, y) if abs(e) <= 12 * s]
            ends = [-12 * s, *ends, 12 * s]
            expected = by_quadrature(
                lambda f, d=d, s=s, y=y: math.exp(log_normal(f, s)) * log_t(y - f, d), ends
            )
        assert ours == pytest.approx(expected, abs=3e-8 * (d + 1), rel=1e-8), (d, s, y)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_the_log_density_is_the_integral_at_any_distance() -> None:
    df, sd, far = columns()
    found = StudentTPlusNormal(df, torch.zeros_like(df), torch.ones_like(df), sd).log_prob(far)
    for (d, s, y), ours in zip(CASES, found.tolist(), strict=True):
        if s == 0:
            expected = log_t(y, d)
        else:
            ends = breaks(d, s, y)

            def log_joint(f: float, d: float = d, s: float = s, y: float = y) -> float:
                return log_normal(f, s) + log_t(y - f, d)

            top = max(log_joint(e) for e in ends)
            total = by_quadrature(lambda f, top=top, log=log_joint: math.exp(log(f) - top), ends)
            expected = top + math.log(total)
        assert ours == pytest.approx(expected, rel=2e-6, abs=1e-7), (d, s, y)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_the_cdf_is_the_integral_and_accurate_in_its_tail() -> None:
    cases = [c for c in CASES if c[0] < 100 and c[1] > 0]
    df, sd, far = columns(cases)
    law = StudentTPlusNormal(df, torch.zeros_like(df), torch.ones_like(df), sd)
    below, above, log_below = law.cdf(-far), law.cdf(far), law.log_cdf(-far)
    torch.testing.assert_close(below + above, torch.ones_like(far), rtol=0, atol=1e-12)
    for (d, s, y), ours, log in zip(cases, below.tolist(), log_below.tolist(), strict=True):
        ends = [e for e in breaks(d, s, y) if abs(e) <= 38 * s]
        integrand = lambda f, d=d, s=s, y=y: math.exp(log_normal(f, s)) * special.stdtr(d, -y - f)  # noqa: E731
        mirrored = sorted({-e for e in ends} | {-38 * s, 0.0, 38 * s} | set(ends))
        expected = by_quadrature(integrand, mirrored)
        assert ours == pytest.approx(expected, rel=2e-6, abs=1e-8), (d, s, y)
        assert log == pytest.approx(math.log(expected), rel=1e-6, abs=1e-6)


def test_samples_follow_the_cdf() -> None:
    law = law_of([torch.tensor([x], dtype=F64) for x in (3.0, 1.0, 0.5, 2.0)])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = law.sample((4000,))
    assert draws.shape == (4000, 1)
    uniform = law.cdf(draws)[:, 0].numpy()
    assert stats.kstest(uniform, "uniform").pvalue > 0.01
    assert law.cdf(torch.tensor([-math.inf], dtype=F64)).item() == 0.0
    assert law.cdf(torch.tensor([math.inf], dtype=F64)).item() == 1.0


@pytest.mark.parametrize("kind", ["expected", "marginal"])
def test_first_and_second_derivatives(kind: str) -> None:
    """Compare derivatives in df, scale, mean and variance with finite differences.

    The cases have widths of all ratios, and one or two modes.
    """
    cases = [
        (2.0, 0.3, 0.0, 1.0, 0.4),
        (4.0, 0.02, 0.0, 1.0, 6.0),
        (8.0, 1.0, 0.3, 1e-4, 5.0),
        (30.0, 0.1, 0.0, 9.0, -2.0),
    ]
    df, scale, mean, variance, y = columns(cases)

    def value(df: Tensor, scale: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        if kind == "expected":
            return expected_log_density(df, scale, mean, variance, y)
        return StudentTPlusNormal(df, mean, scale, variance.sqrt()).log_prob(y)

    inputs = tuple(x.clone().requires_grad_() for x in (df, scale, mean, variance))
    assert torch.autograd.gradcheck(value, inputs, eps=1e-6, atol=1e-4, rtol=1e-4)
    assert torch.autograd.gradgradcheck(value, inputs, eps=1e-6, atol=1e-3, rtol=1e-3)


def test_a_traced_density_follows_df() -> None:
    lik, f = StudentT(), torch.zeros(3, dtype=F64)
    y = torch.tensor([0.1, 2.0, 9.0], dtype=F64)

    def value(df: Tensor) -> Tensor:
        theta = {"df": df, "scale": torch.tensor(0.5, dtype=F64)}
        return lik.marginal(theta, f, f + 0.2).log_prob(y)

    traced = make_fx(value)(torch.tensor(3.0, dtype=F64))
    other = torch.tensor(20.0, dtype=F64)
    torch.testing.assert_close(traced(other), value(other))


def test_ppgpr_learns_the_degrees_of_freedom() -> None:
    """The gradient of the objective in df equals the finite difference."""
    g = torch.Generator().manual_seed(0)
    X = torch.linspace(-2, 2, 40, dtype=F64)[:, None]
    y = X[:, 0].sin() + 0.2 * torch.randn(40, generator=g, dtype=F64)
    y[::8] += 3.0
    model = SVGP(
        RBF(1.0, 1.0), likelihood=StudentT(), objective="ppgpr", Z=X[::4].clone(), learn=False
    )

    def objective(df: Tensor) -> Tensor:
        q = {"v_loc": torch.zeros(10, dtype=F64), "v_scale_tril": torch.eye(10, dtype=F64)}
        theta = {"df": df, "scale": torch.tensor(0.3, dtype=F64), **q}
        return model.elbo(theta, X, y, total=40)

    df = torch.tensor(2.5, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(objective(df), df)
    h = 1e-4
    with torch.no_grad():
        measured = (objective(df + h) - objective(df - h)) / (2 * h)
    assert float(slope) == pytest.approx(float(measured), rel=1e-5)
    assert abs(float(slope)) > 0.1


def test_single_precision_is_close_to_double() -> None:
    df, sd, far = columns([c for c in CASES if c[0] < 100])
    one = StudentTPlusNormal(df, torch.zeros_like(df), torch.ones_like(df), sd)
    two = law_of([x.float() for x in (df, torch.zeros_like(df), torch.ones_like(df), sd)])
    torch.testing.assert_close(
        two.log_prob(far.float()).double(), one.log_prob(far), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(two.cdf(-far.float()).double(), one.cdf(-far), rtol=1e-3, atol=1e-6)
