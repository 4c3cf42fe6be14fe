"""Bayesian multinomial logistic (softmax) regression."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset, Scaler
from ..errors import SettingError
from ..likelihoods.target_checks import count_classes
from ..numerics.glm_curvature import softmax_curvature
from ..priors import Flat, Normal, Prior, PriorLike, Site, bare, site
from ..target.capabilities import LikelihoodDerivatives, LinearCoefficients
from .base import Model, check_labels, with_fixed
from .classification import check_determined, check_two_classes, separation
from .sites import Theta
from .units import coefficients_in_units


@dataclass(frozen=True, repr=False)
class SoftmaxRegression(Model, LinearCoefficients, LikelihoodDerivatives):
    """y ~ Categorical(softmax(X weight_k + bias_k)), y in {0, .., K - 1}. Bishop (2006), section 4.3.4.

    Identifiability: the likelihood stays the same when one vector is added to the weights of all classes (or one number to
    all biases). Under a proper prior all K vectors are sites and the prior, the same for every class, tells them apart; under
    ``Flat`` class 0 is the reference, its coefficients 0, and K - 1 vectors are sites.

    Args:
        weight: prior of each of the weights, sites of shape [K, d] (Flat: [K - 1, d]).
        bias: prior (or number) of the intercepts, [K] (Flat: [K - 1]).
        classes: K; None: as many as the data have.
    """

    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike = Normal(0.0, 1.0)
    classes: int | None = None
    standardised: bool = field(default=False, kw_only=True)
    scales = "X"
    one_mode = True

    def _classes(self) -> int:
        if self.classes is None:
            raise SettingError(
                "the number of classes",
                "None",
                "pass classes=, or fit with ppgp.fit, which counts them",
            )
        return self.classes

    def _rows(self, prior: PriorLike) -> int:
        return self._classes() - isinstance(bare(prior), Flat)

    def sites(self, d: int) -> dict[str, Site]:
        return {
            "weight": site("weight", self.weight, (self._rows(self.weight), d)),
            "bias": site("bias", self.bias, (self._rows(self.bias),)),
        }

    def prepare(self, data: Dataset) -> SoftmaxRegression:
        """Count the classes; raises for targets that are not the codes 0 .. K - 1, or flat weights that the data leave free."""
        ready = self if self.classes is not None else replace(self, classes=count_classes(data))
        check_labels(ready, data, ready.classes or 2)
        check_two_classes(data)
        check_determined(data, self.weight, self.bias)
        return ready

    def _all(self, theta: Theta, X: Tensor) -> tuple[Tensor, Tensor]:
        """weight [*draw, K, d] and bias [*draw, K], the reference class included."""
        assert self.classes is not None
        weight, bias = self.value(theta, "weight", X), self.value(theta, "bias", X)
        weight = weight.expand(self.classes, X.shape[-1]) if weight.ndim < 2 else weight
        bias = bias.expand(self.classes) if bias.ndim == 0 else bias
        if weight.shape[-2] < self.classes:
            weight = torch.cat([torch.zeros_like(weight[..., :1, :]), weight], -2)
        if bias.shape[-1] < self.classes:
            bias = torch.cat([torch.zeros_like(bias[..., :1]), bias], -1)
        return weight, bias

    def in_units(self, scaler: Scaler) -> SoftmaxRegression:
        weight, bias = coefficients_in_units(self.weight, self.bias, scaler)
        return replace(self, weight=weight, bias=bias)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        weight, bias = self._all(draws, scaler.x_mean[None])
        weight = weight / scaler.x_sd
        bias = bias - weight @ scaler.x_mean
        if isinstance(
            bare(self.bias), Flat
        ):  # class 0 is the reference: one number more in all classes changes nothing
            bias = bias - bias[..., :1]
        assert self.classes is not None
        whole = {"weight": weight, "bias": bias}
        last = {"weight": -2, "bias": -1}
        return {
            name: whole[name].narrow(last[name], self.classes - n, n)
            for name, n in self._drawn(draws).items()
        }

    def _drawn(self, draws: Theta) -> dict[str, int]:
        """{site: how many classes have it}."""
        return {
            name: self._rows(getattr(self, name)) for name in ("weight", "bias") if name in draws
        }

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        weight, bias = self._all(theta, X)
        return dist.Categorical(logits=X @ weight.mT + bias[..., None, :])

    def coefficients(self, draws: Theta, scaler: Scaler | None, X: Tensor) -> dict[str, Tensor]:
        """weight [chain, draw, K, d] (log-odds over units of x_j) and bias [chain, draw, K], of all classes."""
        K = self._classes()
        shapes = {"weight": (K, X.shape[-1]), "bias": (K,)}
        weight, bias = self._all(
            dict(zip(shapes, with_fixed(self, draws, shapes, X), strict=True)), X
        )
        if scaler is None:
            return {"weight": weight, "bias": bias}
        weight = weight / scaler.x_sd
        return {"weight": weight, "bias": bias - weight @ scaler.x_mean}

    def curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """log p(y given theta), its gradient and Hessian [p, p] over the sites laid end to end: block IRLS."""
        weight, bias = self._all(theta, data.X)
        value, gradient, H = softmax_curvature(data.X, data.y, weight, bias)
        K, d = weight.shape
        index = torch.arange(K * (d + 1)).reshape(K, d + 1)
        kept = []
        for prior, columns in ((self.weight, index[:, :d]), (self.bias, index[:, d:])):
            if isinstance(prior, Prior):
                kept.append(columns[K - self._rows(prior) :].reshape(-1))
        order = torch.cat(kept)
        return value, gradient.reshape(-1)[order], H.reshape(K * (d + 1), -1)[order][:, order]

    def check_identifiability(self, data: Dataset) -> list[str]:
        """Whether flat or nearly flat priors meet data that the inputs separate."""
        return separation(data, self.classes or 2, self.weight, self.bias)
