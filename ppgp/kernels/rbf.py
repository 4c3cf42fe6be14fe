"""The squared-exponential kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import Lengthscale, LogNormal, PriorLike
from .base import Theta, constant_variance
from .distance import FEW_COLUMNS, far_columns, squared_distance
from .fourier_features import Draw, gaussian_frequencies
from .radial import Profile, Radial


@dataclass(frozen=True)
class RBF(Radial):
    """variance * exp(-|x - x'|^2 / (2 lengthscale^2)).

    Here x and x' are rows of X [n, d].

    Isotropic in X as the model sees it: ``fit`` standardises columns one by one, and those that
    ``Dataset(coordinates=)`` names by one common factor. A fixed lengthscale is in the units of the
    data, and is the same in every direction of the data.

    Rasmussen & Williams (2006), equation 4.9.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.
        lengthscale: Prior of the lengthscale, or a number that fixes it, in the unit of X.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0.

    Examples:
        Rows that are one and two lengthscales apart:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [1.0], [2.0]])
        >>> kernel = kernels.RBF(variance=1.0, lengthscale=1.0)
        >>> kernel({}, X)
        tensor([[1.0000, 0.6065, 0.1353],
                [0.6065, 1.0000, 0.6065],
                [0.1353, 0.6065, 1.0000]])
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = Lengthscale()
    hyper = ("variance", "lengthscale")
    rescales = True
    about_origin = False
    times = -0.5

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        if X2 is None or X1.shape[-1] <= FEW_COLUMNS:
            return h["variance"] * torch.exp(-0.5 * squared_distance(X1, X2, h["lengthscale"]))
        # the whole exponent in one matrix product, in double precision: only ``exp`` passes over
        # the large matrix again
        A, B = X1.double(), X2.double()
        centre = B.mean(-2, keepdim=True)
        A, B = A - centre, B - centre
        if far_columns(A, B, h["lengthscale"]):
            return h["variance"] * torch.exp(-0.5 * squared_distance(X1, X2, h["lengthscale"]))
        A, B, log_variance = A / h["lengthscale"], B / h["lengthscale"], h["variance"].log()
        a = log_variance - 0.5 * A.square().sum(-1, keepdim=True)
        b = -0.5 * B.square().sum(-1, keepdim=True)
        ones = torch.ones_like(B[..., :1]).expand_as(b)
        left = torch.cat([A.expand(*a.shape[:-1], A.shape[-1]), a, torch.ones_like(a)], -1)
        exponent = left @ torch.cat([B, ones, b], -1).mT
        if X1.dtype != torch.float64:
            exponent = exponent.to(X1.dtype)
            # no correlation is above 1; the rounding that is taken off has no slope
            excess = exponent.detach() - log_variance.detach()
            exponent = exponent - excess.clamp_min(0.0)
        return torch.exp(exponent)

    def profile(self, h: Theta, squared: Tensor, spare: bool = False) -> Profile:
        log_variance = h["variance"].log()
        exponent = squared.add_(log_variance) if spare else squared + log_variance
        K = exponent.exp_()
        return Profile(K, K)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def spectrum(self, h: Theta, d: int, draw: Draw) -> Tensor:
        return gaussian_frequencies(draw, d, h["lengthscale"])
