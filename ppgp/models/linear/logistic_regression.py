"""Bayesian logistic regression for two classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    LikelihoodDerivatives,
    LikelihoodOfFunctions,
    LinearCoefficients,
    ProbitPrediction,
)
from ...data.dataset import Dataset, Scaler
from ...likelihoods import Bernoulli, Likelihood
from ...priors import Normal, Prior, PriorLike, Site, site
from ..base import WeightedRows, check_labels, linear
from ..classification import check_coefficients_determined, check_two_classes, separation
from ..sites import Theta, with_fixed
from ..units import coefficients_in_units, coefficients_of_data
from .glm_curvature import binary_curvature


@dataclass(frozen=True, repr=False)
class LogisticRegression(
    WeightedRows,
    LinearCoefficients,
    LikelihoodDerivatives,
    LikelihoodOfFunctions,
    ProbitPrediction,
):
    """Logistic regression: y ~ Bernoulli(sigmoid(X weight + bias)), with y in {0, 1}.

    Bishop (2006), section 4.5. The sites are ``weight`` [d], log odds per unit of each column, and
    ``bias`` [], the log odds at x = 0.

    Args:
        weight: Prior or number of each of the d weights.
        bias: Prior or number of the intercept.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: From ``fit``, for targets other than 0 and 1, or a weight or bias that is
            neither a prior nor a number.
        DataError: From ``fit``, for rows of one class only, or flat weights that the data do not
            determine.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> # 1 event in 4 rows without exposure, 3 in 4 rows with it
        >>> data = ppgp.Dataset([[0.0]] * 4 + [[1.0]] * 4, [0, 0, 0, 1, 0, 1, 1, 1])
        >>> model = models.LogisticRegression(weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> posterior.predict([[0.0], [1.0]]).probabilities[:, 1].numpy().round(4)
        array([0.25, 0.75])
        >>> weight = posterior.coefficients()["weight"][0, 0]
        >>> weight.exp().numpy().round(3)  # the odds ratio, (3 / 1) / (1 / 3)
        array([9.])
    """

    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike = Normal(0.0, 1.0)
    standardised: bool = field(default=False, kw_only=True)
    scales = "X"
    one_mode = True

    @property
    def two_classes(self) -> bool:
        return True

    def sites(self, d: int) -> dict[str, Site]:
        return {"weight": site("weight", self.weight, (d,)), "bias": site("bias", self.bias)}

    def prepare(self, data: Dataset) -> LogisticRegression:
        """Return this recipe.

        Raises:
            SettingError: For targets other than 0 and 1.
            DataError: For rows of one class only, or flat weights that the data do not determine.
        """
        check_labels(self, data, 2)
        check_two_classes(data)
        check_coefficients_determined(data, self.weight, self.bias)
        return self

    def in_units(self, scaler: Scaler) -> LogisticRegression:
        weight, bias = coefficients_in_units(self.weight, self.bias, scaler)
        return replace(self, weight=weight, bias=bias)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return coefficients_of_data(draws, self.value(draws, "weight", scaler.x_mean), scaler)

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        return dist.Bernoulli(logits=self._logits(theta, X))

    def _logits(self, theta: Theta, X: Tensor) -> Tensor:
        """Return X weight + bias, [*draw, n]."""
        return linear(self.value(theta, "weight", X), self.value(theta, "bias", X), X)

    def functions_of_rows(self, theta: Theta, X: Tensor) -> Tensor:
        return self._logits(theta, X)[None]

    def likelihood_of_functions(self) -> Likelihood:
        return Bernoulli()

    def coefficients(self, draws: Theta, scaler: Scaler, X: Tensor) -> dict[str, Tensor]:
        """Return the coefficients in the units of the data; see ``LinearCoefficients``.

        They are "weight" [chain, draw, d] (log-odds over units of x_j) and "bias" [chain, draw].
        """
        weight, bias = with_fixed(self, draws, {"weight": X.shape[1:], "bias": ()}, X)
        weight = weight / scaler.x_sd
        return {"weight": weight, "bias": bias - weight @ scaler.x_mean}

    def curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """Return log p(y given theta), its gradient and its Hessian, as IRLS needs them.

        The coordinates are those of weight and then bias; fixed ones are left out.
        """
        X = data.X
        weight, bias = self.value(theta, "weight", X).expand(data.d), self.value(theta, "bias", X)
        value, gradient, H = binary_curvature(X, data.y, weight, bias, data.weights)
        kept = []
        if isinstance(self.weight, Prior):
            kept += range(data.d)
        if isinstance(self.bias, Prior):
            kept.append(data.d)
        return value, gradient[kept], H[kept][:, kept]

    def probit(self, theta: Theta, X: Tensor) -> Distribution:
        """Return the probit approximation of the predictive distribution, batch [1, n].

        p(y = 1) = sigmoid(m / sqrt(1 + pi v / 8)), where m and v are the mean and the variance of
        the logit over the draws. MacKay (1992).
        """
        logits = self._logits(theta, X)
        m, v = logits.mean(0), logits.var(0, correction=0)
        return dist.Bernoulli(logits=(m / torch.sqrt(1 + math.pi * v / 8))[None])

    def check_identifiability(self, data: Dataset) -> list[str]:
        """Return a warning if the inputs separate the classes and the priors are nearly flat."""
        return separation(data, 2, self.weight, self.bias)
