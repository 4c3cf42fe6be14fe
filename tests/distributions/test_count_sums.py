"""Sums over long ranges of counts against sums term by term."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from ppgp.distributions.crps import LONGEST, RANGE_NODES, crps, rule, sum_over_counts
from ppgp.distributions.mixture import cdf, quantile

F64 = torch.float64


@pytest.mark.parametrize("length", [16, 64, 128, 1024, LONGEST])
def test_a_rule_is_exact_for_polynomials(length: int) -> None:
    part = rule(length)
    assert (np.diff(part.nodes) > 0).all()
    assert part.nodes[0] == 0
    assert part.nodes[-1] == length - 1
    k = np.arange(length) / length
    for degree in (0, 1, 5, RANGE_NODES // 2):
        wanted = (k**degree).sum()
        assert part.weights @ (part.nodes / length) ** degree == pytest.approx(wanted, rel=1e-12)
        assert part.coarse @ (part.nodes / length) ** degree == pytest.approx(wanted, rel=1e-12)
    if length > 64:
        # rounding is not magnified
        assert (part.weights > 0).all()


FUNCTIONS = {
    "a normal cdf": lambda k, m: torch.special.ndtr((k - m) / m.sqrt()).square(),
    "a power": lambda k, m: (1 + k) ** -0.9,
    "a staircase": lambda k, m: torch.exp(-2 * (k / 2).floor() / m),
    "a jump": lambda k, m: torch.where(k < m, 1.0, 1e-3 * torch.exp(-k / m)),
    "two scales": lambda k, m: torch.exp(-k) + 1e-3 * torch.special.ndtr((m - k) / 3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_are_those_term_by_term(name: str) -> None:
    f = FUNCTIONS[name]
    m = torch.tensor([3.0, 60.0, 1000.0, 30_011.0], dtype=F64)
    low = torch.tensor([0.0, 7.0, 0.0, 100.0], dtype=F64)
    high = torch.tensor([40.0, 6.0, 5000.0, 50_000.0], dtype=F64)
    sums = sum_over_counts(lambda k, rows: f(k, m[rows]), low, high)
    for i, each in enumerate(sums.tolist()):
        k = torch.arange(float(low[i]), float(high[i]) + 1, dtype=F64)
        assert each == pytest.approx(float(f(k, m[i]).sum()), rel=1e-9, abs=1e-300)
    assert float(sums[1]) == 0.0


def test_few_values_are_computed() -> None:
    seen = 0

    def f(k: Tensor, rows: Tensor) -> Tensor:
        nonlocal seen
        seen += k.numel()
        return torch.exp(-k / 1e5)

    low, high = torch.zeros(1, dtype=F64), torch.full((1,), 1e6, dtype=F64)
    total = float(sum_over_counts(f, low, high))
    assert total == pytest.approx((1 - np.exp(-10 - 1e-5)) / -np.expm1(-1e-5), rel=1e-10)
    assert seen < 2000


@pytest.mark.parametrize("mean", [0.3, 40.0, 2000.0])
@pytest.mark.parametrize("family", ["poisson", "negative binomial", "binomial"])
def test_the_crps_is_the_sum_over_all_counts(family: str, mean: float) -> None:
    generator = torch.Generator().manual_seed(0)
    mu = mean * torch.exp(0.2 * torch.randn(7, 6, generator=generator, dtype=F64))
    size = torch.full_like(mu, 2.0)
    many = torch.full_like(mu, 10_000.0)
    law = {
        "poisson": dist.Poisson(mu),
        "negative binomial": dist.GammaPoisson(size, size / mu),
        "binomial": dist.Binomial(many, mu / many),
    }[family]
    y = torch.tensor([0.0, 1.0, mean, mean + 0.3, 9 * mean, -2.5], dtype=F64)
    low, high = quantile(law, 1e-14), quantile(law, 1 - 1e-14)
    wanted = (low - y).clamp_min(0.0) + (y - high - 1).clamp_min(0.0)
    k = low + torch.arange(int((high - low).max()) + 1, dtype=F64)[:, None]
    below = (y - k).clamp(0.0, 1.0)
    F = cdf(law, k)
    terms = below * F.square() + (1 - below) * (1 - F).square()
    wanted = wanted + torch.where(k <= high, terms, 0.0).sum(0)
    torch.testing.assert_close(crps(law, y), wanted, rtol=1e-10, atol=0.0)
