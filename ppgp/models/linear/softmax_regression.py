"""Bayesian multinomial logistic (softmax) regression."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    LikelihoodDerivatives,
    LikelihoodOfFunctions,
    LinearCoefficients,
)
from ...data.dataset import Dataset, Scaler
from ...errors import SettingError
from ...likelihoods import Categorical, Likelihood
from ...likelihoods.target_checks import count_classes
from ...priors import Flat, Normal, Prior, PriorLike, Site, bare, site
from ..base import WeightedRows, check_labels
from ..classification import check_coefficients_determined, check_two_classes, separation
from ..sites import Theta, with_fixed
from ..units import coefficients_in_units
from .glm_curvature import softmax_curvature


@dataclass(frozen=True, repr=False)
class SoftmaxRegression(
    WeightedRows, LinearCoefficients, LikelihoodDerivatives, LikelihoodOfFunctions
):
    """Softmax regression: y ~ Categorical(softmax(X weight_k + bias_k)), y in {0, .., K - 1}.

    Bishop (2006), section 4.3.4. The likelihood does not change if one vector is added to the
    weights of all classes, or one number to all biases. Under a proper prior all K vectors are
    sites, and the prior, which is the same for every class, identifies them. Under ``Flat`` class 0
    is the reference with coefficients 0, and the other K - 1 vectors are sites. Weights are log
    odds per unit of each column.

    Args:
        weight: Prior or number of the weights; the site has shape [K, d] (Flat: [K - 1, d]).
        bias: Prior or number of the intercepts; the site has shape [K] (Flat: [K - 1]).
        classes: K, the number of classes; None: as many as the data have.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If ``classes`` is not a whole number of at least 2; from ``fit``, for targets
            that are not the codes 0 .. K - 1, or a weight or bias that is neither a prior nor a
            number.
        DataError: From ``fit``, for rows of one class only, or flat weights that the data do not
            determine.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> X = [[0.0]] * 4 + [[1.0]] * 4
        >>> data = ppgp.Dataset(X, ["a", "a", "b", "c", "a", "b", "c", "c"])
        >>> model = models.SoftmaxRegression(weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> posterior.predict([[0.0], [1.0]]).probabilities.numpy().round(3)  # of the classes
        array([[0.5 , 0.25, 0.25],
               [0.25, 0.25, 0.5 ]])
        >>> posterior.theta["weight"].shape  # [draw, K - 1, d], as class "a" is the reference
        torch.Size([1, 2, 1])
    """

    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike = Normal(0.0, 1.0)
    classes: int | None = None
    standardised: bool = field(default=False, kw_only=True)
    scales = "X"
    one_mode = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes is not None and (type(self.classes) is not int or self.classes < 2):
            raise SettingError(
                "at least 2 classes in SoftmaxRegression",
                repr(self.classes),
                "for example classes=3, or None for as many as the data have",
            )

    def _classes(self) -> int:
        if self.classes is None:
            raise SettingError(
                "the number of classes",
                "None",
                "pass classes=, or fit with ppgp.fit, which counts them",
            )
        return self.classes

    def _sites_per_class(self, prior: PriorLike) -> int:
        """Return how many classes have a site: all K, or K - 1 under a flat prior."""
        return self._classes() - isinstance(bare(prior), Flat)

    def sites(self, d: int) -> dict[str, Site]:
        return {
            "weight": site("weight", self.weight, (self._sites_per_class(self.weight), d)),
            "bias": site("bias", self.bias, (self._sites_per_class(self.bias),)),
        }

    def prepare(self, data: Dataset) -> SoftmaxRegression:
        """Return the recipe with its number of classes.

        Raises:
            SettingError: For targets that are not the codes 0 .. K - 1.
            DataError: For rows of one class only, or flat weights that the data do not determine.
        """
        ready = self
        if self.classes is None:
            ready = replace(self, classes=count_classes(data))
        check_labels(ready, data, ready.classes or 2)
        check_two_classes(data)
        check_coefficients_determined(data, self.weight, self.bias)
        return ready

    def _all_classes(self, theta: Theta, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight [*draw, K, d] and bias [*draw, K], with the reference class."""
        assert self.classes is not None
        weight, bias = self.value(theta, "weight", X), self.value(theta, "bias", X)
        if weight.ndim < 2:
            weight = weight.expand(self.classes, X.shape[-1])
        if bias.ndim == 0:
            bias = bias.expand(self.classes)
        if weight.shape[-2] < self.classes:
            weight = torch.cat([torch.zeros_like(weight[..., :1, :]), weight], -2)
        if bias.shape[-1] < self.classes:
            bias = torch.cat([torch.zeros_like(bias[..., :1]), bias], -1)
        return weight, bias

    def in_units(self, scaler: Scaler) -> SoftmaxRegression:
        weight, bias = coefficients_in_units(self.weight, self.bias, scaler)
        return replace(self, weight=weight, bias=bias)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        weight, bias = self._all_classes(draws, scaler.x_mean[None])
        weight = weight / scaler.x_sd
        bias = bias - weight @ scaler.x_mean
        if isinstance(bare(self.bias), Flat):
            # class 0 is the reference: a number subtracted from all classes changes nothing
            bias = bias - bias[..., :1]
        K = self._classes()
        converted: dict[str, Tensor | None] = {}
        if "weight" in draws:
            n = self._sites_per_class(self.weight)
            converted["weight"] = weight.narrow(-2, K - n, n)
        if "bias" in draws:
            n = self._sites_per_class(self.bias)
            converted["bias"] = bias.narrow(-1, K - n, n)
        return converted

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        weight, bias = self._all_classes(theta, X)
        return dist.Categorical(logits=X @ weight.mT + bias[..., None, :])

    def functions_of_rows(self, theta: Theta, X: Tensor) -> Tensor:
        weight, bias = self._all_classes(theta, X)
        return weight @ X.mT + bias[:, None]

    def likelihood_of_functions(self) -> Likelihood:
        return Categorical(self._classes())

    def coefficients(self, draws: Theta, scaler: Scaler, X: Tensor) -> dict[str, Tensor]:
        """Return the coefficients of all classes in the units of the data.

        They are "weight" [chain, draw, K, d] (log-odds over units of x_j) and "bias"
        [chain, draw, K]; see ``LinearCoefficients``.
        """
        K = self._classes()
        shapes = {"weight": (K, X.shape[-1]), "bias": (K,)}
        weight, bias = with_fixed(self, draws, shapes, X)
        weight, bias = self._all_classes({"weight": weight, "bias": bias}, X)
        weight = weight / scaler.x_sd
        return {"weight": weight, "bias": bias - weight @ scaler.x_mean}

    def curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """Return log p(y given theta), its gradient and its Hessian, for block IRLS.

        The coordinates are the entries of weight and then of bias; fixed ones are left out.
        """
        weight, bias = self._all_classes(theta, data.X)
        value, gradient, H = softmax_curvature(data.X, data.y, weight, bias, data.weights)
        K, d = weight.shape
        index = torch.arange(K * (d + 1)).reshape(K, d + 1)
        kept = []
        for prior, columns in ((self.weight, index[:, :d]), (self.bias, index[:, d:])):
            if isinstance(prior, Prior):
                kept.append(columns[K - self._sites_per_class(prior) :].reshape(-1))
        order = torch.cat(kept)
        return value, gradient.reshape(-1)[order], H.reshape(K * (d + 1), -1)[order][:, order]

    def check_identifiability(self, data: Dataset) -> list[str]:
        """Return a warning if the inputs separate the classes and the priors are nearly flat."""
        return separation(data, self.classes or 2, self.weight, self.bias)
