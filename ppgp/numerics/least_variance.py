"""Variances that stay positive where rounding errors, or a prior variance of 0, leave nothing."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["at_least_rounding"]


def at_least_rounding(variance: Tensor, prior: Tensor) -> Tensor:
    """Return the variance [*b, m] of f, or the rounding error of its prior variance if larger.

    A prior variance can be 0, such as that of Linear at the origin. The least result is the
    smallest normal number.

    Args:
        variance: [*b, m], a difference from the prior variance.
        prior: [*b, m].
    """
    numbers = torch.finfo(prior.dtype)
    return torch.maximum(variance, (numbers.eps * prior).clamp_min(numbers.tiny))
