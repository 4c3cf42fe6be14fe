"""The CRPS of Student t and of its mixtures: quadrature in many digits, and closed values."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from scipy import stats
from torch.distributions import StudentT

from ppgp import Prediction

F64 = torch.float64


def crps(df, loc, scale, y, dtype=F64) -> float:
    df, loc, scale = (torch.tensor(p, dtype=dtype)[:, None] for p in (df, loc, scale))
    return float(Prediction(StudentT(df, loc, scale)).crps(torch.tensor([y], dtype=dtype)))


def by_quadrature(df, loc, scale, y) -> float:
    """The integral of (F - 1[x >= y])^2 in 25 digits; tails in the log of the distance."""
    with mpmath.workdps(25):
        parts = [
            (mpmath.mpf(d), mpmath.mpf(m), mpmath.mpf(s))
            for d, m, s in zip(df, loc, scale, strict=True)
        ]

        def tail(x, sign):
            total = mpmath.mpf(0)
            for d, m, s in parts:
                z = sign * (x - m) / s
                w = mpmath.betainc(d / 2, 0.5, 0, d / (d + z * z), regularized=True) / 2
                total += w if z < 0 else 1 - w
            return total / len(parts)

        total = mpmath.mpf(0)
        for sign in (1, -1):  # below y, and above it
            points = sorted(
                {0.0}
                | {
                    max(0.0, sign * (y - m) + s * step)
                    for _, m, s in parts
                    for step in (-30, -8, -2, 0, 2, 8, 30)
                }
            )
            f = lambda t, sign=sign: tail(y - sign * t, sign) ** 2  # noqa: E731
            total += mpmath.quad(f, points) if len(points) > 1 else 0
            end = max(points[-1], 1.0)
            if points[-1] < end:
                total += mpmath.quad(f, [points[-1], end])
            g = lambda u, f=f, end=end: f(end * mpmath.exp(u)) * end * mpmath.exp(u)  # noqa: E731
            total += mpmath.quad(g, [0, 2, 5, 10, 20, 40, 80, 160, 320])
        return float(total)


@pytest.mark.parametrize("df", [0.6, 0.9, 0.996, 0.9999, 1.0, 1.004, 1.2, 2.0, 5.0, 40.0])
@pytest.mark.parametrize("y", [0.0, 2.5])
def test_one_component(df, y) -> None:
    assert math.isclose(
        crps([df], [0.3], [0.7], y), by_quadrature([df], [0.3], [0.7], y), rel_tol=1e-8
    )


def test_closed_values() -> None:
    assert math.isclose(crps([1.0], [0.0], [1.0], 0.0), 2 * math.log(2) / math.pi, rel_tol=1e-12)
    normal = 2 * stats.norm.pdf(0) - 1 / math.sqrt(math.pi)
    assert math.isclose(crps([1e7], [0.0], [1.0], 0.0), normal, rel_tol=1e-6)


@pytest.mark.parametrize("df", [0.5, 0.3])
def test_a_tail_of_at_most_one_half_is_infinitely_wrong(df) -> None:
    assert crps([df], [0.0], [1.0], 0.0) == math.inf
    assert crps([df, 4.0], [0.0, 0.0], [1.0, 1.0], 0.0) == math.inf


MIXTURES = {
    "near": ([0.7, 3.0], [0.0, 1.0], [1.0, 0.5], 0.4),
    "narrow": ([4.0, 4.0, 2.0], [-5.0, 0.0, 7.0], [0.01, 0.02, 0.005], 0.1),
    "heavy": ([1.0, 1.0], [0.0, 2.0], [1.0, 1.0], 5.0),
}


@pytest.mark.parametrize(("df", "loc", "scale", "y"), MIXTURES.values(), ids=MIXTURES)
def test_mixtures(df, loc, scale, y) -> None:
    assert math.isclose(crps(df, loc, scale, y), by_quadrature(df, loc, scale, y), rel_tol=1e-8)


@pytest.mark.parametrize("count", [2, 16, 40])
def test_equal_components_are_one(count) -> None:
    for df in (0.8, 1.0, 3.0):
        one = crps([df], [1.0], [2.0], 0.3)
        found = crps([df] * count, [1.0] * count, [2.0] * count, 0.3)
        assert math.isclose(found, one, rel_tol=1e-8)


def test_single_precision() -> None:
    found = crps([1.0], [0.0], [1.0], 0.0, torch.float32)
    assert math.isclose(found, 2 * math.log(2) / math.pi, rel_tol=1e-6)


@pytest.mark.parametrize("df", [1e5, 1e8, 1e12, 1e17])
@pytest.mark.parametrize("y", [0.0, 5.0])
def test_many_degrees_of_freedom_have_the_crps_of_a_normal(df: float, y: float) -> None:
    """The two differ by a number of order 1 / df."""
    density = math.exp(-0.5 * y**2) / math.sqrt(2 * math.pi)
    normal = y * math.erf(y / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi)
    assert crps([df], [0.0], [1.0], y) == pytest.approx(normal, rel=30 / df + 1e-13)


@pytest.mark.parametrize("df", [0.9, 2.0])
@pytest.mark.parametrize("apart", [30.0, 100.0, 300.0])
def test_components_far_apart(df: float, apart: float) -> None:
    for y in (0.0, 0.4 * apart):
        parts = [df, df], [0.0, apart], [1.0, 1.0]
        assert crps(*parts, y) == pytest.approx(by_quadrature(*parts, y), rel=1e-8)
