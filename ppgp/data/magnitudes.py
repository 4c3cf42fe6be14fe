"""Means and standard deviations of columns of any magnitude: no square overflows or vanishes on the way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ULPS = 4  # values that differ by no more are one number and its rounding


class Spread(NamedTuple):
    """Of each column: its mean, its standard deviation, and whether all its values are one number up to rounding."""

    mean: Tensor
    sd: Tensor
    constant: Tensor


def spread(values: Tensor) -> Spread:
    """Of ``values`` [n, ...] over the rows.

    Columns whose squares would leave the range of their dtype are divided by a power of two near their largest magnitude. Columns
    that share more than half of their digits are first moved by their smallest value. Both are exact.
    """
    low, high = values.amin(0), values.amax(0)
    exponent = torch.frexp(torch.maximum(low.abs(), high.abs())).exponent
    quarter = (
        torch.frexp(torch.tensor(torch.finfo(values.dtype).max, dtype=values.dtype)).exponent // 4
    )
    exponent = torch.where(exponent.abs() > quarter, exponent, 0)
    if bool(exponent.any()):
        values, low, high = (times_two_to(v, -exponent) for v in (values, low, high))
    eps = torch.finfo(values.dtype).eps
    largest, width = torch.maximum(low.abs(), high.abs()), high - low
    power = times_two_to(torch.ones_like(largest), torch.frexp(largest).exponent - 1)
    constant = width <= ULPS * eps * torch.where(largest == 0, 0.0, power)
    shift = torch.where(width < largest * eps**0.5, low, 0.0)
    if bool(shift.any()):
        values = values - shift
    mean, sd = shift + values.mean(0), values.std(0, correction=0)
    if bool(exponent.any()):
        mean, sd = times_two_to(mean, exponent), times_two_to(sd, exponent)
        constant = constant | (sd == 0)  # smaller than any float
    return Spread(mean, sd, constant)


def root_mean_square(values: Tensor) -> Tensor:
    """Of all the values, of any magnitude; 0 of zeros."""
    largest = values.abs().max()
    if float(largest) == 0.0:
        return largest
    exponent = torch.frexp(largest).exponent
    return times_two_to(times_two_to(values, -exponent).square().mean().sqrt(), exponent)


def standardised(values: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    """(values - mean) / sd, by halves where a difference may exceed the largest float."""
    limit = torch.finfo(mean.dtype)
    if bool((mean.abs() > limit.max * limit.eps / 4).any()):
        return (values / 2 - mean / 2) / (sd / 2)
    return (values - mean) / sd


def times_two_to(values: Tensor, exponent: Tensor) -> Tensor:
    """values * 2 ** exponent, exactly, where 2 ** exponent alone may be no float."""
    half = exponent.cpu().numpy() // 2
    for part in (half, exponent.cpu().numpy() - half):
        values = values * torch.as_tensor(
            np.ldexp(1.0, part), dtype=values.dtype, device=values.device
        )
    return values
