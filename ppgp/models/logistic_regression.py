"""Bayesian logistic regression for two classes."""

from __future__ import annotations

from dataclasses import dataclass

import pyro.distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from ..data import Dataset, Scaler
from ..priors import Normal, PriorLike, Site, site
from .model import Model, Theta, check_labels, linear


@dataclass(frozen=True)
class LogisticRegression(Model):
    """y ~ Bernoulli(sigmoid(X weight + bias)), y in {0, 1}. Bishop (2006), section 4.5.

    Args:
        weight: prior (or number) of each of the d weights.
        bias: prior or number of the intercept.
    """

    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike = Normal(0.0, 1.0)
    scales = "X"

    def sites(self, d: int) -> dict[str, Site]:
        return {"weight": site("weight", self.weight, (d,)), "bias": site("bias", self.bias)}

    def prepare(self, data: Dataset) -> LogisticRegression:
        """Raises SettingError for targets other than 0 and 1."""
        check_labels(self, data, 2)
        return self

    def law(self, theta: Theta, X: Tensor) -> Distribution:
        return dist.Bernoulli(logits=linear(self.value(theta, "weight", X), self.value(theta, "bias", X), X))

    def coefficients(self, draws: Theta, scaler: Scaler | None) -> dict[str, Tensor]:
        """weight [chain, draw, d] (log-odds over units of x_j) and bias [chain, draw]."""
        weight, bias = draws["weight"], draws["bias"]
        if scaler is None:
            return {"weight": weight, "bias": bias}
        weight = weight / scaler.x_sd
        return {"weight": weight, "bias": bias - weight @ scaler.x_mean}
