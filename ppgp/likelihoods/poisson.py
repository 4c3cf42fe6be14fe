"""The Poisson likelihood of counts."""

from __future__ import annotations

from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..numerics.distributions import PoissonLogNormal
from .base import Likelihood, Theta, root
from .target_checks import check_counts_of_events


@dataclass(frozen=True)
class Poisson(Likelihood):
    """y ~ Poisson(exp(f)), y = 0, 1, 2, ...: a log-Gaussian Cox process on a grid.

    Moller, Syversveen & Waagepetersen (1998).
    """

    scales = "X"

    def prepare(self, data: Dataset) -> Poisson:
        """Return this likelihood.

        Raises:
            DataError: If a target is not a count.
        """
        check_counts_of_events(data)
        return self

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        return dist.Poisson(f.exp())

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        return PoissonLogNormal(mean, root(variance))

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return y E f - E exp(f) - log y!, in closed form."""
        return y * mean - (mean + 0.5 * variance).exp() - torch.lgamma(y + 1)
