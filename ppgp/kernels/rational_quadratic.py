"""The rational-quadratic kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import Lengthscale, LogNormal, PriorLike
from .base import Theta, constant_variance
from .distance import squared_distance
from .fourier_features import Draw, gamma_frequencies
from .radial import Profile, Radial


@dataclass(frozen=True)
class RationalQuadratic(Radial):
    """variance * (1 + |x - x'|^2 / (2 alpha lengthscale^2))^-alpha.

    Here x and x' are rows of X [n, d]. It is a mixture of RBF kernels with different lengthscales,
    and tends to RBF as alpha grows.

    Isotropic in X as the model sees it: ``fit`` standardises columns one by one, and those that
    ``Dataset(coordinates=)`` names by one common factor. A fixed lengthscale is in the units of the
    data, and is the same in every direction of the data.

    Rasmussen & Williams (2006), equation 4.19.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.
        lengthscale: Prior of the lengthscale, or a number that fixes it, in the unit of X.
        alpha: Prior of the shape of the mixture, or a number that fixes it, without a unit.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0.

    Examples:
        The covariance falls off more slowly than that of RBF, and approaches it for a large alpha:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [1.0], [2.0]])
        >>> kernels.RationalQuadratic(1.0, 1.0, alpha=1.0)({}, X)[0]
        tensor([1.0000, 0.6667, 0.3333])
        >>> kernels.RationalQuadratic(1.0, 1.0, alpha=1e4)({}, X)[0]
        tensor([1.0000, 0.6065, 0.1354])
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = Lengthscale()
    alpha: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("variance", "lengthscale", "alpha")
    rescales = True
    about_origin = False

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        r2 = squared_distance(X1, X2, h["lengthscale"])
        return h["variance"] * torch.exp(-h["alpha"] * torch.log1p(0.5 * r2 / h["alpha"]))

    def profile(self, h: Theta, squared: Tensor, spare: bool = False) -> Profile:
        alpha = h["alpha"]
        u = squared * (0.5 / alpha)
        log_base = torch.log1p(u)
        K = torch.sub(h["variance"].log(), alpha * log_base).exp_()
        decline = K / (1 + u)
        by_alpha = K * (u / (1 + u) - log_base)
        return Profile(K, decline, others={"alpha": by_alpha})

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def spectrum(self, h: Theta, d: int, draw: Draw) -> Tensor:
        return gamma_frequencies(draw, d, h["lengthscale"], float(h["alpha"]))
