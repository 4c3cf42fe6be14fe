"""The periodic kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta, constant_variance, other_rows


@dataclass(frozen=True)
class Periodic(Kernel):
    """variance * exp(-2 sum_k sin^2(pi (x_k - x'_k) / period) / lengthscale^2).

    Here x and x' are rows of X [n, d]. The lengthscale is relative to the sine and has no unit.
    With several columns it is the product of the kernels of the columns, which have the same
    period. For one column among many use ``Subspace``.

    MacKay (1998), equation 47.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.
        lengthscale: Prior of the lengthscale, or a number that fixes it, without a unit.
        period: Prior of the period, or a number that fixes it, in the unit of X.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0.

    Examples:
        Rows that are one period apart have the same value, those half a period apart differ most:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [6.0], [12.0]])
        >>> kernels.Periodic(variance=1.0, lengthscale=1.0, period=12.0)({}, X)[0]
        tensor([1.0000, 0.1353, 1.0000])
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = LogNormal(0.0, 1.0)
    period: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("variance", "lengthscale", "period")
    dimensions = {"lengthscale": (0, 0)}  # of the wave, which has no unit
    about_origin = False

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        other = other_rows(X1, X2)
        total = torch.zeros((), dtype=X1.dtype, device=X1.device)
        for k in range(X1.shape[-1]):
            difference = X1[..., :, None, k] - other[..., None, :, k]
            total = total + torch.sin(math.pi * difference / h["period"]).square()
        return h["variance"] * torch.exp(-2.0 * total / h["lengthscale"].square())

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)
