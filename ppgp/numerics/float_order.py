"""The floating-point numbers in their order, for an exact search among them in any units."""

from __future__ import annotations

import torch
from torch import Tensor


def place(x: Tensor) -> Tensor:
    """Return the position of each finite float in the order of floats; both zeros are 0."""
    if x.dtype == torch.float64:
        integers, mask = torch.int64, 2**63 - 1
    else:
        integers, mask = torch.int32, 2**31 - 1
    magnitude = x.view(integers).to(torch.int64) & mask
    return torch.where(torch.signbit(x), -magnitude, magnitude)


def number(places: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the float at each position; the inverse of ``place``."""
    integers = torch.int64 if dtype == torch.float64 else torch.int32
    size = places.abs().to(integers).view(dtype)
    return torch.where(places < 0, -size, size)


def between(low: Tensor, high: Tensor) -> Tensor:
    """Return the position half-way between two, without overflow of their sum."""
    return (low >> 1) + (high >> 1) + (low & high & 1)
