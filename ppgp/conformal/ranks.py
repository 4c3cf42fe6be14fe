"""The rank of the calibration score that is the threshold, in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from ..posterior.region import exact_level

__all__ = ["rank", "side_level", "smallest_n", "threshold"]


def side_level(level: float, sides: int = 1) -> Fraction:
    """Return the level of each side, for all sides to hold together at ``level``.

    It is 1 - (1 - level) / sides, exactly.
    """
    return 1 - (1 - exact_level(level)) / sides


def rank(n: int, level: float, sides: int = 1) -> int:
    """Return k = ceil((n + 1) level): the k-th smallest score is the threshold.

    The arithmetic is exact, from the level as written. Floating point would sometimes give k off by
    one.
    """
    return math.ceil((n + 1) * side_level(level, sides))


def smallest_n(level: float, sides: int = 1) -> int:
    """Return how many calibration rows a finite set needs: ceil(sides / alpha) - 1."""
    return math.ceil(Fraction(sides) / (1 - exact_level(level))) - 1


def threshold(scores: Tensor, level: float) -> Tensor:
    """Return the k-th smallest score, or +inf where k > n.

    It is never clipped to the largest score. The shape is [] for scores [n], and [2] for [n, 2].
    """
    columns = scores.reshape(len(scores), -1)
    k = rank(len(scores), level, columns.shape[1])
    if k > len(scores):
        q = torch.full(columns.shape[1:], torch.inf, dtype=scores.dtype, device=scores.device)
    else:
        q = columns.kthvalue(k, 0).values
    return q.reshape(scores.shape[1:])
