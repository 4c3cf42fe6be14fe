"""Bayesian linear regression with unknown noise."""

from __future__ import annotations

from dataclasses import dataclass

import pyro.distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from ..data import Scaler
from ..priors import LogNormal, Normal, PriorLike, Site, site
from .model import Model, Theta, linear


@dataclass(frozen=True)
class LinearRegression(Model):
    """y ~ N(X weight + bias, noise), weight_j, bias and noise with independent priors. Gelman et al. (2013), chapter 14.

    Args:
        weight: prior (or number) of each of the d weights.
        bias: prior or number of the intercept.
        noise: prior or number of the noise variance.
    """

    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike = Normal(0.0, 1.0)
    noise: PriorLike = LogNormal(-1.0, 1.5)

    def sites(self, d: int) -> dict[str, Site]:
        return {
            "weight": site("weight", self.weight, (d,)),
            "bias": site("bias", self.bias),
            "noise": site("noise", self.noise, positive=True),
        }

    def law(self, theta: Theta, X: Tensor) -> Distribution:
        loc = linear(self.value(theta, "weight", X), self.value(theta, "bias", X), X)
        return dist.Normal(loc, self.value(theta, "noise", X).sqrt()[..., None])

    def coefficients(self, draws: Theta, scaler: Scaler | None) -> dict[str, Tensor]:
        """weight [chain, draw, d] (units of y over units of x_j) and bias [chain, draw] (units of y)."""
        weight, bias = draws["weight"], draws["bias"]
        if scaler is None:
            return {"weight": weight, "bias": bias}
        weight = weight * scaler.y_sd / scaler.x_sd
        return {"weight": weight, "bias": scaler.y_mean + scaler.y_sd * bias - weight @ scaler.x_mean}
