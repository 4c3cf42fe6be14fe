"""The spherical kernel of geostatistics."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..priors import Lengthscale, LogNormal, PriorLike
from .base import Kernel, Theta
from .distance import distance
from .hyperparameters import constant_variance


@dataclass(frozen=True)
class Spherical(Kernel):
    """variance * (1 - 3 s / 2 + s^3 / 2) for s = |x - x'| / lengthscale < 1, else 0: two balls' common volume.

    Isotropic in X as the model sees it: ``fit`` scales columns one by one, those that ``Dataset(coordinates=)`` names by one factor.
    A length in the units of the data, a number, is one length in every direction of the data.

    The lengthscale is the range itself, where the variogram reaches its sill. A covariance in one, two and three dimensions
    only. Matheron (1965); Chiles & Delfiner (2012), section 2.5.1.
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = Lengthscale()
    hyper = ("variance", "lengthscale")
    rescales = True
    about_origin = False
    widths = (1, 3)

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        s = distance(X1, X2, h["lengthscale"]).clamp_max(1.0)
        return h["variance"] * (1.0 - 1.5 * s + 0.5 * s**3)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)
