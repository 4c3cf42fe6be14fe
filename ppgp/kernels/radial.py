"""Kernels of one distance, and how they change with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from .base import Kernel, Theta


@dataclass(frozen=True)
class Profile:
    """A function of the squared distance R2 = |x - x'|^2 / lengthscale^2 at all pairs of rows.

    Attributes:
        value: Variance * g(R2), [n, n], row-major.
        decline: [n, n], of which ``factor`` times is -2 variance * g'(R2); 0 where that is
            infinite. It may be ``value`` itself.
        factor: See ``decline``.
        others: {hyperparameter: variance * dg/dhyperparameter}, apart from ``variance`` and
            ``lengthscale``.
    """

    value: Tensor
    decline: Tensor
    factor: float = 1.0
    others: dict[str, Tensor] = field(default_factory=dict)


class Radial(Kernel):
    """A kernel variance * g(|x - x'|^2 / lengthscale^2), with the slope of g as a formula.

    Attributes:
        times: The multiple of the squared distance that ``profile`` takes.
    """

    times: ClassVar[float] = 1.0

    def profile(self, h: Theta, squared: Tensor, spare: bool = False) -> Profile:
        """Return the covariance and its decline.

        Args:
            h: The hyperparameters [].
            squared: ``times`` |x - x'|^2 / lengthscale^2, [n, n], row-major.
            spare: Whether ``squared`` may be overwritten; it is left as it is otherwise. New
                memory costs more than a pass over memory in use.
        """
        raise NotImplementedError


def exponential_profile(variance: Tensor, squared: Tensor, spare: bool = False) -> Profile:
    """Return variance * exp(-r), with r the root of ``squared``; see ``Radial.profile``."""
    r = at_least_zero(squared, spare).sqrt_()
    K = torch.sub(variance.log(), r).exp_()
    # at r = 0 the slope is infinite, but it is multiplied by a difference of 0
    return Profile(K, torch.where(r > 0, K / r, 0.0))


def at_least_zero(squared: Tensor, spare: bool) -> Tensor:
    """Return a squared distance without the negative numbers of its rounding.

    Args:
        squared: [n, n].
        spare: Whether it may be overwritten.
    """
    if spare:
        return squared.clamp_min_(0.0)
    return squared.clamp_min(0.0)
