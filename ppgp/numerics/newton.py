"""Newton's method beside rounding errors: how far a step may descend, and which gains count."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["ROUNDINGS", "allowed_descent", "at_rounding", "small_gain", "too_small_to_see"]

ROUNDING = 1e-10  # how much a step may descend, relative to what it maximises
ROUNDINGS = 16.0  # errors of rounding of the dtype within which values do not tell points apart
SMALL = 1e-3  # nats


def allowed_descent(value: Tensor) -> Tensor:
    """Return by how much a step may descend from a log density [], as rounding does."""
    return max(ROUNDING, torch.finfo(value.dtype).eps) * (1 + value.abs())


def small_gain(value: Tensor) -> float:
    """Return the gain in nats below which one at a log density [] may be rounding errors."""
    return max(SMALL, torch.finfo(value.dtype).eps * (1 + abs(float(value))))


def too_small_to_see(rise: float, value: float, dtype: torch.dtype) -> bool:
    """Return whether a rise in nats may be lost in the rounding of a log density.

    Where no step raises the density, that is a maximum only if the rise that its derivatives
    promise is so small. Otherwise the derivatives are not those of the density, or it has a kink.
    NaN is not small.
    """
    eps = torch.finfo(dtype).eps
    least = max(ROUNDING, ROUNDINGS * eps) * (1 + abs(value))
    return rise <= (least if dtype == torch.float64 else max(SMALL, least))


def at_rounding(gain: float, before: float, value: Tensor) -> bool:
    """Return whether the gain of a step in float32 is that of rounding errors in the gradient.

    The gains of a method that converges fall. In Newton's method each is about the square of the
    one before; with the expected curvature, or towards a maximum at infinity, it is a share of the
    one before. A small gain that does not fall is the floor that errors in the gradient leave. The
    density itself does not show it: the errors of a sum are those of its terms, which may be much
    larger than the sum. In float64 searches end by the size of the gain alone, and the answer is
    False.

    Args:
        gain: What a whole step promises, in nats.
        before: That of the whole step before it; infinite if there is none.
        value: The log density, [].
    """
    return value.dtype != torch.float64 and before <= gain < small_gain(value)
