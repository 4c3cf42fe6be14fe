"""The kernel with a linear variogram."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta
from .distance import TINY, distance


@dataclass(frozen=True)
class LinearVariogram(Kernel):
    """slope * (|x| + |x'| - |x - x'|), Levy's Brownian field.

    Here x and x' are rows of X [n, d]. The variogram is slope * |x - x'|, without a sill. Such a
    variogram has no stationary covariance: this field is 0 at the origin. With a constant drift
    (ordinary kriging) predictions do not depend on the origin, and are those of the linear
    variogram. Levy (1948); Chiles & Delfiner (2012), section 2.5.3. A linear variogram with a sill
    is a covariance in one dimension only, and is not available.

    If ``fit`` standardises X and the slope has a prior, the origin is the mean of the training
    rows, for draws in the units of the data too.

    Args:
        slope: Prior of the slope, or a number that fixes it, in the unit of y^2 / X.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0.

    Examples:
        The variogram, half the mean squared difference, grows by the slope per unit of distance:

        >>> import torch
        >>> from ppgp import kernels
        >>> K = kernels.LinearVariogram(slope=2.0)({}, torch.tensor([[1.0], [2.0], [5.0]]))
        >>> level = K.diagonal()
        >>> (level[:, None] + level) / 2 - K
        tensor([[0., 2., 8.],
                [2., 0., 6.],
                [8., 6., 0.]])
    """

    slope: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("slope",)
    dimensions = {"slope": (2, -1)}

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        here = _norm(X1)
        there = here if X2 is None else _norm(X2)
        apart = distance(X1, X2, torch.ones_like(h["slope"]))
        return h["slope"] * (here[..., :, None] + there[..., None, :] - apart)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return h["slope"] * 2.0 * _norm(X)


def _norm(X: Tensor) -> Tensor:
    return X.square().sum(-1).clamp_min(TINY).sqrt()
