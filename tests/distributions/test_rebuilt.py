"""Distributions rebuilt from their tensors keep the other arguments of their family."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch

from ppgp.distributions import univariate
from ppgp.errors import NotApplicable

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


@pytest.mark.parametrize(
    "one",
    [
        dist.ZeroInflatedPoisson(2 * HALF, gate=0.6 * HALF),
        dist.ZeroInflatedPoisson(2 * HALF, gate_logits=0.6 * HALF),
        dist.ZeroInflatedNegativeBinomial(2 * HALF, probs=HALF, gate=0.6 * HALF),
    ],
    ids=["gate", "gate_logits", "negative binomial"],
)
def test_a_zero_inflated_distribution(one: dist.TorchDistribution) -> None:
    draws = univariate.stack([one, one])
    assert isinstance(draws.batch_shape, torch.Size)
    assert draws.batch_shape == (2, 3)
    for count in (0.0, 1.0):
        expected = one.log_prob(torch.full((3,), count, dtype=F64)).expand(2, 3)
        torch.testing.assert_close(draws.log_prob(torch.full((2, 3), count, dtype=F64)), expected)
