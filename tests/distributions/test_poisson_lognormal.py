"""P(Y = 0) of a Poisson count whose log rate is very uncertain."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate

from ppgp.distributions.distributions import PoissonLogNormal

F64 = torch.float64
NONE = torch.zeros((), dtype=F64)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=F64)


def by_quadrature(loc: float, scale: float) -> float:
    """Return log E exp(-exp(f)), with the range split at the step of the integrand."""

    def integrand(f: float) -> float:
        return float(
            np.exp(-np.exp(f) - 0.5 * ((f - loc) / scale) ** 2) / np.sqrt(2 * np.pi) / scale
        )

    inner = sorted(
        {min(max(x, loc - 39 * scale), loc + 39 * scale) for x in (-30.0, -5.0, 0.0, 2.0, 4.0, loc)}
    )
    edges = [loc - 39 * scale, *inner, max(inner[-1], 5.0)]
    pieces = [(a, b) for a, b in pairwise(edges) if b > a]
    return float(
        np.log(
            sum(
                integrate.quad(integrand, a, b, epsabs=0, epsrel=1e-12, limit=400)[0]
                for a, b in pieces
            )
        )
    )


@pytest.mark.parametrize("scale", [1.1, 2.0, 5.0, 20.0, 100.0])
@pytest.mark.parametrize("loc", [-50.0, -3.0, 0.0, 3.0])
def test_zero_counts_equal_quadrature(loc: float, scale: float) -> None:
    """Gauss-Hermite around the mode would be wrong by .0025 at an sd of 5 and .06 at 100."""
    found = PoissonLogNormal(number(loc), number(scale)).log_prob(NONE)
    assert float(found) == pytest.approx(by_quadrature(loc, scale), rel=0, abs=1e-11)


def test_both_rules_agree_where_they_meet() -> None:
    below, above = (
        PoissonLogNormal(number(0.5), number(s)).log_prob(NONE) for s in (1.0, 1.0 + 1e-9)
    )
    assert float(below) == pytest.approx(float(above), rel=0, abs=1e-7)


def test_gradients() -> None:
    loc = torch.tensor([-2.0, 0.0, 4.0], dtype=F64, requires_grad=True)
    scale = torch.tensor([1.5, 6.0, 30.0], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda m, s: PoissonLogNormal(m, s).log_prob(NONE), (loc, scale)
    )
