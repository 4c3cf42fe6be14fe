"""The cosine kernel: waves of one period."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta, constant_variance, other_rows
from .fourier_features import Draw
from .state_space import Markov, StateSpace, wave


@dataclass(frozen=True)
class Cosine(Kernel, Markov):
    """variance * cos(2 pi (x - x') / period): a wave of one period, of random size and phase.

    It is a covariance for one column only, X [n, 1]: a function of the distance alone that is
    periodic is not positive definite in the plane. The product of a Matern kernel and this one is
    a quasi-periodic kernel, whose waves change slowly. For one column among many use ``Subspace``.

    Rasmussen & Williams (2006), section 4.2.1; Solin & Sarkka (2014), equation 29.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.
        period: Prior of the period, or a number that fixes it, in the unit of X.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            on use, if X has several columns; in a fit, if it is fixed to 0.

    Examples:
        Half a period later the wave is upside down:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
        >>> kernels.Cosine(variance=1.0, period=6.0)({}, X)[0]
        tensor([ 1.0000,  0.5000, -0.5000, -1.0000])
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    period: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("variance", "period")
    about_origin = False
    widths = (1, 1)

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        difference = X1[..., :, None, 0] - other_rows(X1, X2)[..., None, :, 0]
        return h["variance"] * torch.cos(2 * math.pi * difference / h["period"])

    def waves(self, X: Tensor) -> Mapping[str, Tensor]:
        return {"period": X}

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def spectrum(self, h: Theta, d: int, draw: Draw) -> Tensor:
        frequency = 2 * math.pi / h["period"]
        return frequency.expand(draw.samples, draw.features, d)

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        """Return the wave and the same wave a quarter of a period later, which turn in a circle."""
        return wave(
            lambda axes: 2 * math.pi / self._values(theta, like, axes)["period"],
            lambda axes: self._values(theta, like, axes)["variance"],
        )
