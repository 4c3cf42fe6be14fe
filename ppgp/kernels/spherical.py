"""The spherical kernel of geostatistics."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..priors import Lengthscale, LogNormal, PriorLike
from .base import Kernel, Theta, constant_variance
from .distance import distance


@dataclass(frozen=True)
class Spherical(Kernel):
    """variance * (1 - 3 s / 2 + s^3 / 2) for s = |x - x'| / lengthscale < 1, else 0.

    It is proportional to the common volume of two balls. The lengthscale is the range itself, at
    which the variogram reaches its sill. It is a covariance in one, two and three dimensions only:
    x and x' are rows of X [n, d] with d of at most 3.

    Isotropic in X as the model sees it: ``fit`` standardises columns one by one, and those that
    ``Dataset(coordinates=)`` names by one common factor. A fixed lengthscale is in the units of the
    data, and is the same in every direction of the data.

    Matheron (1965); Chiles & Delfiner (2012), section 2.5.1.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.
        lengthscale: Prior of the lengthscale, or a number that fixes it, in the unit of X.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            on use, if X has more than three columns; in a fit, if it is fixed to 0.

    Examples:
        Rows that are further apart than the range of 10 have no covariance:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [5.0], [10.0], [20.0]])
        >>> kernels.Spherical(variance=2.0, lengthscale=10.0)({}, X)[0]
        tensor([2.0000, 0.6250, 0.0000, 0.0000])
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
