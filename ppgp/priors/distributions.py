"""The distributions of priors that Pyro does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all


class LogUniformDistribution(dist.TorchDistribution):
    """exp of a uniform variable: density 1 / (x log(high / low)) for low <= x <= high.

    Hamming (1970).

    Args:
        low: The smallest value, above 0, [*batch].
        high: The largest value, [*batch].
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"low": constraints.positive, "high": constraints.positive}
    support: Any = constraints.dependent
    has_rsample = True

    def __init__(self, low: Tensor, high: Tensor, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        self.support = constraints.interval(self.low, self.high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def _range(self) -> Tensor:
        return (self.high / self.low).log()

    @property
    def mean(self) -> Tensor:
        return (self.high - self.low) / self._range

    @property
    def variance(self) -> Tensor:
        return (self.high.square() - self.low.square()) / (2 * self._range) - self.mean.square()

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Any:
        """Return this distribution with another batch shape."""
        shape = torch.Size(batch_shape)
        return LogUniformDistribution(
            self.low.expand(shape), self.high.expand(shape), validate_args=False
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw by the inverse of the distribution function."""
        shape = torch.Size(sample_shape) + self.batch_shape
        u = torch.rand(shape, dtype=self.low.dtype, device=self.low.device)
        drawn = (self.low.log() + u * self._range).exp()
        return torch.maximum(torch.minimum(drawn, self.high), self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density; -inf outside the support."""
        inside = (value >= self.low) & (value <= self.high)
        safe = torch.where(inside, value, self.low)
        density = -safe.log() - self._range.log()
        return torch.where(inside, density, torch.full_like(density, -torch.inf))

    def cdf(self, value: Tensor) -> Tensor:
        """Return P(X <= value)."""
        return ((value.clamp_min(1e-300) / self.low).log() / self._range).clamp(0.0, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        """Return the quantile at a probability."""
        return (self.low.log() + value * self._range).exp()


class FlatDistribution(dist.TorchDistribution):
    """Log density 0 on its support; every draw is the starting value.

    Unlike Pyro's ImproperUniform it can be drawn from.
    """

    arg_constraints = {}  # type: ignore[assignment] # Pyro annotates a property
    has_rsample = True
    improper = True  # not a probability distribution: its draws are starting values

    def __init__(self, start: Tensor, support: constraints.Constraint) -> None:
        self.start, self._support = start, support
        super().__init__(batch_shape=start.shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override] # fixed in Pyro
        return self._support

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> FlatDistribution:
        """Return this distribution with another batch shape."""
        return FlatDistribution(self.start.expand(torch.Size(batch_shape)), self._support)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return the starting value, repeated."""
        return self.start.expand(torch.Size(sample_shape) + self.batch_shape).clone()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return 0."""
        return torch.zeros_like(value)
