"""E|X - X'| / 2 of two draws from an equal mixture of normals, in a time linear in the components.

It is the integral of F (1 - F). The closed form over pairs of components takes the square of their
number. A mixture of normals has nearly no frequencies above some multiple of 1 / (least scale), so
that its density at equally spaced points determines it to rounding: the cdf there is a sum of these
with the weights 1/2 + Si(pi k) / pi, and the integral is the sum over the points (Stenger 1993,
"Numerical Methods Based on Sinc and Analytic Functions").
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from .univariate import distinct_rows, take

REACH = 7.0  # sd beyond a component where its density is left out, 1e-12 of its probability
STEP = 0.42  # spacing in units of the least scale: frequencies above it have a weight of 1e-12
SEGMENT = 64  # points between which densities follow from one another
MOST = 100.0  # exponent of the ratio of neighbouring densities, for components far from a segment
BLOCK = 125_000  # numbers [draw, row] in one block
POINTS = 2048  # of a row at most: the weights of one point in the cdf at another take 32 MB
UNEVEN = 1.25  # ratio of the numbers of points from which rows are grouped by it


def points(distribution: Any) -> Tensor:
    """Return how many points each row of a mixture of normals needs, [n].

    The method is for at most ``POINTS``.
    """
    loc, scale = _from_the_first(distribution)
    reach = REACH * scale
    width = (loc + reach).amax(0) - (loc - reach).amin(0)
    return torch.ceil(width / (STEP * scale.amin(0))) + 1


def half_mean_difference(distribution: Any, points: Tensor) -> Tensor:
    """Return E|X - X'| / 2 of each row, [n], without a gradient.

    It is computed in double precision whatever the dtype, as the densities follow from one another.

    Args:
        distribution: Normal of batch [draw, n].
        points: [n], the result of ``points``.
    """
    draws, n = distribution.batch_shape
    size = max(1, BLOCK // draws)
    out = torch.empty_like(points)
    even = n <= size or bool(points.max() <= UNEVEN * points.min())
    order = None if even else points.argsort()
    for start in range(0, n, size):
        rows: Any = slice(start, start + size)
        if order is not None:
            rows = order[rows]
        out[rows] = _of_block(take(distribution, rows), int(points[rows].max()))
    return out


@torch.no_grad()
def _of_block(distribution: Any, points: int) -> Tensor:
    loc, scale = _from_the_first(distribution)
    reach = REACH * scale
    low, high = (loc - reach).amin(0), (loc + reach).amax(0)
    step = (high - low) / (points - 1)
    density = torch.cat(
        [
            _densities(loc, scale, low + first * step, step, min(SEGMENT, points - first))
            for first in range(0, points, SEGMENT)
        ]
    )
    below = torch.as_tensor(_weights(points), device=loc.device) @ (density * step)
    return (below * (1 - below)).sum(0) * step


def _densities(loc: Tensor, scale: Tensor, first: Tensor, step: Tensor, number: int) -> Tensor:
    """Return the density at equally spaced points, [number, n], each component from the last."""
    unit = scale * math.sqrt(2)
    away, apart = (loc - first) / unit, step / unit
    height = torch.exp(-away.square()) / (unit * math.sqrt(math.pi))
    ratio = torch.exp((2 * away * apart - apart.square()).clamp_max(MOST))
    fall = torch.exp(-2 * apart.square())
    out = loc.new_empty(number, loc.shape[-1])
    for i in range(number):
        torch.mean(height, 0, out=out[i])
        height *= ratio
        ratio *= fall
    return out


def _from_the_first(distribution: Any) -> tuple[Tensor, Tensor]:
    """Return the locations less that of the first component, and the scales.

    The integral does not change. Far from 0 the points would have rounded places.
    """
    loc, scale = distribution.loc.double(), distinct_rows(distribution.scale).double()
    return loc - loc[0], scale


@lru_cache(maxsize=1)
def _steps() -> np.ndarray:
    """Return the weight of a density in the cdf k points above it, by descending k."""
    apart = np.arange(POINTS - 1, -POINTS, -1)
    return 0.5 + special.sici(math.pi * apart)[0] / math.pi


def _weights(points: int) -> np.ndarray:
    """Return the weights of the densities at all points in the cdf at each, [points, points].

    They depend on the difference of the two places alone.
    """
    rows = np.lib.stride_tricks.sliding_window_view(_steps(), points)
    return np.ascontiguousarray(rows[POINTS - points : POINTS][::-1])
