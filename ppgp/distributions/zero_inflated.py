"""Counts that are 0 more often than their distribution has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn.functional import logsigmoid, softplus

from . import univariate
from .negative_binomial import LINEAR

__all__ = ["ZeroInflatedCounts"]


class ZeroInflatedCounts(dist.TorchDistribution):
    """0 with a probability, and otherwise counts of a likelihood. Lambert (1992), equation 1.

    Args:
        loc: [*batch], f of the counts; its mean if there is a scale.
        gate_logits: [*batch], the logit of the probability.
        given: [*batch, P], the parameters of the likelihood.
        scale: [*batch], the sd of f, over which the counts are averaged; None: f is known.
        likelihood: The likelihood of the counts, of P named parameters.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {
        "loc": constraints.real,
        "gate_logits": constraints.real,
        "given": constraints.real_vector,
        "scale": constraints.nonnegative,
    }
    support: Any = constraints.nonnegative_integer

    def __init__(
        self,
        loc: Tensor,
        gate_logits: Tensor,
        given: Tensor,
        scale: Tensor | None = None,
        *,
        likelihood: Any,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.gate_logits = torch.broadcast_tensors(loc, gate_logits)
        self.given = given.expand(*self.loc.shape, given.shape[-1])
        self.scale = None if scale is None else scale.expand(self.loc.shape)
        self.likelihood = likelihood
        super().__init__(self.loc.shape, torch.Size(), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> ZeroInflatedCounts:
        shape = torch.Size(batch_shape)
        loc, gate = self.loc.expand(shape), self.gate_logits.expand(shape)
        given = self.given.expand(shape + self.given.shape[-1:])
        scale = None if self.scale is None else self.scale.expand(shape)
        return ZeroInflatedCounts(loc, gate, given, scale, likelihood=self.likelihood)

    @property
    def counts(self) -> Distribution:
        """The distribution of the counts that are not 0 by themselves."""
        p = {name: self.given[..., i] for i, name in enumerate(self.likelihood.parameters)}
        if self.scale is None:
            return self.likelihood._distribution(p, self.loc)
        return self.likelihood._marginal(p, self.loc, self.scale.square())

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(-self.gate_logits) * self.counts.mean

    @property
    def variance(self) -> Tensor:
        counts, share = self.counts, torch.sigmoid(-self.gate_logits)
        return share * (counts.variance + torch.sigmoid(self.gate_logits) * counts.mean.square())

    def log_prob(self, value: Tensor) -> Tensor:
        own = logsigmoid(-self.gate_logits) + self.counts.log_prob(value)
        gate = logsigmoid(self.gate_logits)
        # logaddexp has no second derivative where one of the two is negligible
        return torch.where(value == 0, gate + softplus(own - gate, threshold=LINEAR), own)

    def cdf(self, value: Tensor) -> Tensor:
        share = torch.sigmoid(self.gate_logits)
        p = share + torch.sigmoid(-self.gate_logits) * univariate.cdf(self.counts, value)
        return torch.where(value < 0, torch.zeros_like(p), p)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            drawn = self.counts.sample(shape)
            zero = torch.rand_like(drawn) < torch.sigmoid(self.gate_logits)
            return torch.where(zero, torch.zeros_like(drawn), drawn)
