"""Means and standard deviations of columns of any magnitude.

No square overflows or underflows in the computation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...runtime.team import Team

ULPS = 4  # values that differ by no more units in the last place are one number


class Spread(NamedTuple):
    """Statistics of columns.

    Attributes:
        mean: The mean of each column.
        sd: Its standard deviation.
        constant: Whether all its values are one number up to rounding.
    """

    mean: Tensor
    sd: Tensor
    constant: Tensor


def spread(values: Tensor, weights: Tensor | None = None) -> Spread:
    """Return mean and standard deviation over the rows of ``values`` [n, ...].

    With ``weights`` [n] a row counts as often as its weight says, and not at all at 0.

    Columns whose squares would leave the range of their dtype are divided by a power of two near
    their largest magnitude. Columns whose values share more than half of their digits are first
    moved by their smallest value. Both operations are exact.
    """
    if weights is not None:
        values, weights = values[weights > 0], weights[weights > 0]
    low, high = values.amin(0), values.amax(0)
    exponent = torch.frexp(torch.maximum(low.abs(), high.abs())).exponent
    most = values.new_tensor(torch.finfo(values.dtype).max)
    quarter = torch.frexp(most).exponent // 4
    exponent = torch.where(exponent.abs() > quarter, exponent, 0)
    if bool(exponent.any()):
        values, low, high = (times_two_to(v, -exponent) for v in (values, low, high))
    eps = torch.finfo(values.dtype).eps
    largest, width = torch.maximum(low.abs(), high.abs()), high - low
    constant = width <= _rounding(largest, eps)
    shift = torch.where(width < largest * eps**0.5, low, 0.0)
    if bool(shift.any()):
        values = values - shift
    if weights is None:
        mean, sd = values.mean(0), values.std(0, correction=0)
    else:
        share = (weights / weights.sum()).reshape(-1, *[1] * (values.ndim - 1))
        mean = (share * values).sum(0)
        sd = (share * (values - mean).square()).sum(0).sqrt()
    mean = shift + mean
    if bool(exponent.any()):
        mean, sd = times_two_to(mean, exponent), times_two_to(sd, exponent)
        constant = constant | (sd == 0)  # the sd is smaller than any float
    return Spread(mean, sd, constant)


def _rounding(largest: Tensor, eps: float) -> Tensor:
    """Return by how much values may differ that are one number, given the largest of them."""
    power = largest / (2 * torch.frexp(largest).mantissa)  # of two, at most the largest
    return ULPS * eps * torch.where(largest == 0, 0.0, power)


def average(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean of values [..., n] over the rows, each counted by its weight [n]."""
    if weights is None:
        return values.mean(-1)
    return (weights * values).sum(-1) / weights.sum()


def spread_without_missing(values: Tensor, weights: Tensor | None = None) -> Spread:
    """Return ``spread`` of ``values`` [n, d] over the rows where a column is not NaN.

    A column without any number is constant, with mean 0.
    """
    missing = values.isnan()
    if not bool(missing.any()):
        return spread(values, weights)
    if weights is None:
        weights = values.new_ones(len(values))
    known = ~missing & (weights > 0)[:, None]
    nothing = values.new_zeros(1)
    columns = [
        spread(column[here], weights[here]) if bool(here.any()) else spread(nothing)
        for column, here in zip(values.unbind(1), known.unbind(1), strict=True)
    ]
    return Spread(*(torch.stack(part) for part in zip(*columns, strict=True)))


def over_ranks(team: Team, own: Spread, counts: Tensor) -> Spread:
    """Return the statistics of columns over the rows of all ranks of a team.

    Chan, Golub & LeVeque (1983): squared deviations add up around the mean of all rows.

    Args:
        team: The team.
        own: The statistics of this rank's rows.
        counts: How many of them have a number in each column.
    """
    parts = torch.stack(
        [own.mean.double(), own.sd.double(), own.constant.double(), counts.double()]
    )
    mean, sd, constant, counts = team.rows_of_all(parts[None]).unbind(1)
    present = counts > 0
    # near the mean, so that no digits are lost
    first = mean.gather(0, present.int().argmax(0, keepdim=True))
    deviation = torch.where(present, mean - first, 0.0)
    total = counts.sum(0)
    total = torch.where(total > 0, total, 1.0)
    shift = (counts * deviation).sum(0) / total
    squares = (counts * (sd.square() + (deviation - shift).square())).sum(0)
    largest = mean.abs().amax(0)
    rounding = _rounding(largest, torch.finfo(own.mean.dtype).eps)
    apart = deviation.amax(0) - deviation.amin(0) > rounding
    varies = (present & (constant == 0)).any(0)
    sd_of_all = (squares / total).sqrt().to(own.sd)
    return Spread((first[0] + shift).to(own.mean), sd_of_all, ~varies & ~apart)


def root_mean_square(values: Tensor) -> Tensor:
    """Return the root mean square of all values, of any magnitude; 0 for zeros."""
    largest = values.abs().max()
    if float(largest) == 0.0:
        return largest
    exponent = torch.frexp(largest).exponent
    return times_two_to(times_two_to(values, -exponent).square().mean().sqrt(), exponent)


def times_two_to(values: Tensor, exponent: Tensor) -> Tensor:
    """Return values * 2 ** exponent, exactly, even where 2 ** exponent is not a float."""
    whole = exponent.cpu().numpy()
    half = whole // 2
    for part in (half, whole - half):
        power = np.ldexp(1.0, part)
        values = values * torch.as_tensor(power, dtype=values.dtype, device=values.device)
    return values
