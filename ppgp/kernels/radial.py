"""Kernels of one distance, and how they change with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .base import Kernel, Theta


@dataclass(frozen=True)
class Profile:
    """A function of the squared distance R2 = |x - x'|^2 / lengthscale^2 at all pairs of rows.

    Attributes:
        value: variance * g(R2), [n, n], row-major.
        decline: [n, n], of which ``factor`` times is -2 variance * g'(R2); 0 where that is
            infinite. It may be ``value`` itself.
        factor: see ``decline``.
        others: {hyperparameter: variance * dg/dhyperparameter}, apart from ``variance`` and
            ``lengthscale``.
    """

    value: Tensor
    decline: Tensor
    factor: float = 1.0
    others: dict[str, Tensor] = field(default_factory=dict)


class Radial(Kernel):
    """A kernel variance * g(|x - x'|^2 / lengthscale^2), with the slope of g as a formula."""

    def profile(self, h: Theta, squared: Tensor) -> Profile:
        """Return the covariance and its decline.

        Args:
            h: the hyperparameters [].
            squared: |x - x'|^2 / lengthscale^2, [n, n], row-major, which is left as it is.
        """
        raise NotImplementedError


def exponential_profile(variance: Tensor, squared: Tensor) -> Profile:
    """Return variance * exp(-r), with r the root of ``squared``."""
    r = squared.clamp_min(0.0).sqrt_()
    K = torch.sub(variance.log(), r).exp_()
    # at r = 0 the slope is infinite, but it is multiplied by a difference of 0
    return Profile(K, torch.where(r > 0, K / r, 0.0))
