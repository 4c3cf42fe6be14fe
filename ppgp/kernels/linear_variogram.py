"""The kernel whose variogram is a straight line."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta
from .distance import TINY, distance


@dataclass(frozen=True)
class LinearVariogram(Kernel):
    """slope * (|x| + |x'| - |x - x'|), Levy's Brownian field, whose variogram is slope * |x - x'| without a sill.

    A line without a sill has no stationary covariance: this field is 0 at the origin. Under a constant drift (ordinary kriging)
    the origin has no part in any prediction, and what is left is the linear variogram alone. Levy (1948); Chiles & Delfiner
    (2012), section 2.5.3. A linear variogram with a sill is a covariance in one dimension only, and is not offered.
    Where ``fit`` has standardised X, the origin of a slope with a prior is the mean of the training rows, in draws in the units of
    the data too.
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
