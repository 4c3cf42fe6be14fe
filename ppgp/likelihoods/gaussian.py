"""The likelihood of Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

import pyro.distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from ..numerics.cholesky import LOG_2PI
from ..priors import LogNormal, PriorLike, Site, site
from .base import Likelihood, Theta


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y ~ N(f, noise). Rasmussen & Williams (2006), section 2.2.

    Args:
        noise: Prior of the variance, or a number that fixes it.
    """

    noise: PriorLike = LogNormal(-2.0, 1.0)
    dimensions = {"noise": 2}

    def sites(self) -> dict[str, Site]:
        return {"noise": site("noise", self.noise, positive=True)}

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        return dist.Normal(f, self.value(theta, "noise", f).sqrt())

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        return dist.Normal(mean, (variance + self.value(theta, "noise", mean)).sqrt())

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f) in closed form; Hensman, Fusi & Lawrence (2013), equation 4."""
        noise = self.value(theta, "noise", mean)
        return -0.5 * (LOG_2PI + noise.log() + ((y - mean).square() + variance) / noise)
