"""The gamma likelihood of positive targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from .. import priors
from ..data.dataset import Dataset
from ..numerics.incomplete_gamma import STEP, five_points, gamma_crps_metric, reciprocal_beta
from ..priors import PriorLike
from .base import Theta
from .parametric import Parametric
from .predicted import Predicted
from .scored import LARGEST_STEP, log_or_zero, raised
from .target_checks import check_positive


@dataclass(frozen=True)
class Gamma(Parametric):
    """y ~ Gamma with mean exp(f), y > 0: the sd is the mean divided by the root of the shape.

    McCullagh & Nelder (1989), section 8.3. With ``shape=Predicted()`` the log of the shape is a
    second function of x.

    Args:
        shape: Prior of the shape, a number that fixes it, or ``Predicted()``.
    """

    shape: PriorLike | Predicted = priors.LogNormal(1.0, 1.0)
    scales = "X"
    positive = True
    limits = (math.inf, LARGEST_STEP)

    def prepare(self, data: Dataset) -> Gamma:
        """Return this likelihood.

        Raises:
            DataError: If a target is not positive.
        """
        check_positive(data)
        return self

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return dist.Gamma(p["shape"], p["shape"] * torch.exp(-f))

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        a = p["shape"]
        inverse = torch.exp(0.5 * variance - mean)  # E exp(-f)
        return a * (a.log() - mean - y * inverse) - torch.lgamma(a) + (a - 1) * y.log()

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        a = p["shape"]
        if kind == "nll":
            r = y * torch.exp(-f)
            return torch.lgamma(a) + y.log() - a * (a.log() + r.log() - r)
        mean = f.exp()
        return mean * _crps(a, y / mean)

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        a, mean = p["shape"], f.exp()
        r = y / mean
        if kind == "nll":
            return a * (1 - r), a * (torch.digamma(a) - a.log() - r.log() + r - 1)
        by_y = 2 * torch.special.gammainc(a, a * r) - 1
        log_a = a.log().expand(r.shape)
        step = torch.full_like(log_a, STEP)
        by_shape = five_points(lambda at: _crps(at.exp(), r), log_a, step)
        return mean * _crps(a, r) - y * by_y, mean * by_shape

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        a = p["shape"].expand(torch.broadcast_shapes(p["shape"].shape, f.shape))
        if kind == "nll":
            return {(0, 0): a, (1, 1): a * (a * torch.polygamma(1, a) - 1)}
        by_mean, by_shape, both = gamma_crps_metric(a)
        mean = f.exp()
        return {(0, 0): mean * by_mean, (0, 1): mean * both, (1, 1): mean * by_shape}

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        mean, variance = float(y.mean()), float(y.var())
        return log_or_zero(mean), log_or_zero(mean**2 / max(variance, 1e-12 * mean**2))

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the sd relative to the mean multiplied by the temperature."""
        return raised(f, 1, -2 * log_temperature) if self.predicted else f


def _crps(a: Tensor, r: Tensor) -> Tensor:
    """Return the CRPS of a gamma distribution of mean 1 and shape a at r."""
    lower, higher = torch.special.gammainc(a, a * r), torch.special.gammainc(a + 1, a * r)
    return r * (2 * lower - 1) - (2 * higher - 1) - reciprocal_beta(a)
