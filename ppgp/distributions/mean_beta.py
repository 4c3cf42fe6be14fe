"""The beta distribution by its mean and precision, without cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from ..numerics.cholesky import LOG_2PI
from .log_gamma import log1p_excess, log_gamma_rest

__all__ = ["MeanBeta", "divergence"]


class MeanBeta(dist.TorchDistribution):
    """Beta(mean precision, (1 - mean) precision). Ferrari & Cribari-Neto (2004), equation 4.

    Args:
        logit: [*batch], the logit of the mean.
        precision: [*batch], the sum of the two parameters.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"logit": constraints.real, "precision": constraints.positive}
    support: Any = constraints.unit_interval

    def __init__(self, logit: Tensor, precision: Tensor, validate_args: bool | None = None) -> None:
        self.logit, self.precision = torch.broadcast_tensors(logit, precision)
        super().__init__(self.logit.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> MeanBeta:
        shape = torch.Size(batch_shape)
        logit, precision = self.logit.expand(shape), self.precision.expand(shape)
        return MeanBeta(logit, precision, validate_args=False)

    @property
    def concentration1(self) -> Tensor:
        """The power of y in the density, plus 1."""
        return self.precision * torch.sigmoid(self.logit)

    @property
    def concentration0(self) -> Tensor:
        """The power of 1 - y in the density, plus 1."""
        return self.precision * torch.sigmoid(-self.logit)

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(self.logit)

    @property
    def variance(self) -> Tensor:
        return torch.sigmoid(self.logit) * torch.sigmoid(-self.logit) / (1 + self.precision)

    def log_prob(self, value: Tensor) -> Tensor:
        a, b, total = self.concentration1, self.concentration0, self.precision
        log_mean, log_rest = logsigmoid(self.logit), logsigmoid(-self.logit)
        log_y, log_not_y = value.log(), torch.log1p(-value)
        # minus the precision times the divergence, and what Stirling's formula leaves
        near = -total * divergence(self.logit, value)
        width = 0.5 * (log_mean + log_rest + total.log() - LOG_2PI)
        rest = log_gamma_rest(total) - log_gamma_rest(a) - log_gamma_rest(b)
        return near + width + rest - log_y - log_not_y

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            tiny = torch.finfo(self.logit.dtype).tiny
            a, b = self.concentration1.clamp_min(tiny), self.concentration0.clamp_min(tiny)
            drawn = dist.Beta(a, b, validate_args=False).sample(shape)
            return drawn.clamp(tiny, 1 - torch.finfo(drawn.dtype).eps)


def divergence(logit: Tensor, y: Tensor) -> Tensor:
    """Return mean log(mean / y) + (1 - mean) log((1 - mean) / (1 - y)).

    The terms linear in y - mean, which cancel, are left out.
    """
    mean, rest = torch.sigmoid(logit), torch.sigmoid(-logit)
    up = log1p_excess((y - mean) / mean, y.log() - logsigmoid(logit))
    down = log1p_excess((1 - y - rest) / rest, torch.log1p(-y) - logsigmoid(-logit))
    return -mean * up - rest * down
