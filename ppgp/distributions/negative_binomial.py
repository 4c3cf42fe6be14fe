"""The negative binomial distribution of counts by its mean and shape, without cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from scipy import special
from torch import Tensor
from torch.distributions import constraints
from torch.nn.functional import softplus

from .counts import through_scipy
from .gamma_functions import digamma_rest, log1p_excess, log_rising, polynomial, trigamma_rest

__all__ = ["MeanNegativeBinomial", "shape_information", "shape_slope", "shape_slopes"]

LINEAR = 80.0  # from here on log(1 + exp(x)) is x
NODES, LOWEST, HIGHEST = 96, -20.0, 3.8  # of the integral over log v, v = t s
SMALL = 0.1  # below it -log(1 - q) - q is summed
SERIES = tuple(1 / (k + 2) for k in range(14))


class MeanNegativeBinomial(dist.TorchDistribution):
    """Counts of mean exp(log_mean) and variance mean + mean^2 / concentration.

    The density tends to that of a Poisson distribution as the concentration grows, without loss of
    digits.

    Args:
        log_mean: [*batch], the log of the mean.
        concentration: [*batch], the shape.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"log_mean": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.nonnegative_integer

    def __init__(
        self, log_mean: Tensor, concentration: Tensor, validate_args: bool | None = None
    ) -> None:
        self.log_mean, self.concentration = torch.broadcast_tensors(log_mean, concentration)
        super().__init__(self.log_mean.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> MeanNegativeBinomial:
        shape = torch.Size(batch_shape)
        log_mean, own = self.log_mean.expand(shape), self.concentration.expand(shape)
        return MeanNegativeBinomial(log_mean, own, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.log_mean.exp()

    @property
    def variance(self) -> Tensor:
        mean = self.mean
        return mean + mean.square() / self.concentration

    def log_prob(self, value: Tensor) -> Tensor:
        t, y = self.concentration, value
        # log t / (t + mean); the second derivative of torch's logsigmoid loses digits
        log_share = -softplus(self.log_mean - t.log(), threshold=LINEAR)
        return y * self.log_mean + (y + t) * log_share + log_rising(t, y) - torch.lgamma(y + 1)

    def cdf(self, value: Tensor) -> Tensor:
        k = value.floor().clamp_min(0.0)
        share = torch.sigmoid(self.log_mean - self.concentration.log())  # 1 minus it loses digits
        p = through_scipy(special.betaincc, k + 1, self.concentration, share)
        return torch.where(value < 0, torch.zeros_like(p), p)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            one = dist.Gamma(self.concentration, self.concentration, validate_args=False).sample(
                shape
            )
            return torch.poisson(self.mean * one)


def shape_slope(shape: Tensor, log_mean: Tensor, y: Tensor) -> Tensor:
    """Return the derivative of the log density by log shape.

    It vanishes like 1 / shape, and keeps its digits.
    """
    t, u = shape, log_mean - shape.log()
    d = (y - log_mean.exp()) / (t + log_mean.exp())
    log_ratio = torch.log1p(y / t) + torch.nn.functional.logsigmoid(-u)  # log (t + y) / (t + mean)
    total = t + y
    first = t * log1p_excess(d, log_ratio) + 0.5 * y / total
    return first + t * (digamma_rest(total) - digamma_rest(t))


def shape_slopes(shape: Tensor, log_mean: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the second derivative of the log density by log shape."""
    t, first = shape, shape_slope(shape, log_mean, y)
    d, total = (y - log_mean.exp()) / (t + log_mean.exp()), t + y
    second = (t * d).square() / total - 0.5 * y * (2 * t + y) / total.square()
    second = second + t.square() * (trigamma_rest(total) - trigamma_rest(t))
    return first, first + second


def shape_information(shape: Tensor, log_mean: Tensor) -> Tensor:
    """Return the Fisher information of log shape, shape^2 sum_(j >= 2) X^j B(shape, j) / j.

    X = mean / (mean + shape): Fisher (1941), with the sum as an integral,

        integral of exp(-t s) (-log(1 - X u) - X u) / u ds,  u = 1 - exp(-s),

    by the trapezoidal rule in log s.
    """
    t, x = shape[..., None], torch.sigmoid(log_mean - shape.log())[..., None]
    log_v = torch.linspace(LOWEST, HIGHEST, NODES, dtype=torch.float64).to(t)
    v = log_v.exp()
    s = v / t
    u = -torch.expm1(-s)
    rest = torch.sigmoid(shape.log() - log_mean)[..., None]  # 1 - X
    q = x * u
    near = q.clamp_max(SMALL)
    series = near.square() * polynomial(SERIES, near)
    # 1 - q = 1 - X + X exp(-s)
    far = -torch.log(rest + x * torch.exp(-s)) - q
    inside = torch.exp(-v) * torch.where(q < SMALL, series, far) / u * s
    step = (HIGHEST - LOWEST) / (NODES - 1)
    return shape.square() * inside.sum(-1) * step
