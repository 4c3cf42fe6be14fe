"""Distributions rebuilt from their tensors keep the other arguments of their family."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch

from ppgp.errors import NotApplicable
from ppgp.numerics import univariate

F64 = torch.float64
HALF = torch.full((3,), 0.5, dtype=F64)


@pytest.mark.parametrize("coords", ["S", "S0"])
def test_a_stable_distribution_keeps_its_coordinates(coords: str) -> None:
    one = dist.Stable(3 * HALF, HALF, 2 * HALF, HALF, coords=coords)
    draws = univariate.stack([one, one])
    torch.testing.assert_close(draws.log_prob(HALF)[1], one.log_prob(HALF))


def test_a_family_with_unknown_arguments_is_refused() -> None:
    relaxed = dist.RelaxedBernoulli(torch.ones((), dtype=F64), probs=HALF)
    with pytest.raises(NotApplicable, match="got RelaxedBernoulli"):
        univariate.stack([relaxed, relaxed])
