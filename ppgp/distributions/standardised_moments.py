"""Skewness and excess kurtosis of distributions of counts, gamma and normal variables."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import distributions as dist
from torch.distributions import Distribution

from .negative_binomial import MeanNegativeBinomial
from .zero_inflated import ZeroInflatedCounts

__all__ = ["skewness_and_kurtosis"]


def skewness_and_kurtosis(distribution: Distribution) -> tuple[Tensor, Tensor] | None:
    """Return skewness and excess kurtosis [*batch]; None for distributions of other families."""
    d: Any = distribution
    while isinstance(d, dist.Independent):
        d = d.base_dist
    if isinstance(d, dist.Normal):
        return torch.zeros_like(d.mean), torch.zeros_like(d.mean)
    if isinstance(d, dist.Poisson):
        return d.mean.rsqrt(), 1 / d.mean
    if isinstance(d, dist.Binomial):
        return (1 - 2 * d.probs) * d.variance.rsqrt(), 1 / d.variance - 6 / d.total_count
    if isinstance(d, dist.Exponential):
        return torch.full_like(d.mean, 2.0), torch.full_like(d.mean, 6.0)
    if isinstance(d, dist.Gamma):
        return 2 * d.concentration.rsqrt(), 6 / d.concentration
    if isinstance(d, MeanNegativeBinomial):
        skewness = (1 + 2 * d.mean / d.concentration) * d.variance.rsqrt()
        return skewness, 6 / d.concentration + 1 / d.variance
    if isinstance(d, ZeroInflatedCounts):
        return _with_zeros(d)
    return None


def _with_zeros(d: ZeroInflatedCounts) -> tuple[Tensor, Tensor] | None:
    """Return those of counts that are 0 with a probability, by moments around 0."""
    own = skewness_and_kurtosis(d.counts)
    if own is None:
        return None
    m, sd = d.counts.mean, d.counts.variance.sqrt()
    third, fourth = own[0] * sd**3, (own[1] + 3) * sd**4
    share = torch.sigmoid(-d.gate_logits)
    second = share * (sd.square() + m.square())
    cube = share * (third + 3 * m * sd.square() + m**3)
    quartic = share * (fourth + 4 * m * third + 6 * m.square() * sd.square() + m**4)
    mean, variance = d.mean, d.variance
    skewness = (cube - 3 * mean * second + 2 * mean**3) * variance**-1.5
    central = quartic - 4 * mean * cube + 6 * mean.square() * second - 3 * mean**4
    return skewness, central / variance.square() - 3
