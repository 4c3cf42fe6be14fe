"""The squared-exponential kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import LogNormal, PriorLike
from .distance import squared_distance
from .kernel import Kernel, Theta, constant_variance
from .paths import Draw, gaussian_frequencies


@dataclass(frozen=True)
class RBF(Kernel):
    """variance * exp(-|x - x'|^2 / (2 lengthscale^2)). Rasmussen & Williams (2006), equation 4.9."""

    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("variance", "lengthscale")
    rescales = True

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        return h["variance"] * torch.exp(-0.5 * squared_distance(X1, X2, h["lengthscale"]))

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def spectrum(self, h: Theta, d: int, draw: Draw) -> Tensor:
        return gaussian_frequencies(draw, d, h["lengthscale"])
