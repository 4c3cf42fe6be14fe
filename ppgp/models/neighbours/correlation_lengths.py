"""How far a kernel correlates along each column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

__all__ = ["correlation_lengths"]

HALF = 0.5
A_DECADE = 15  # distances that are tried
PASSES = 4  # each between two distances of the one before it
FINER = 121  # distances of the later passes
REACH = 4  # decades, from below the smallest spread of a column to above the largest


def correlation_lengths(
    kernel: Callable[..., Tensor], theta: Mapping[str, Tensor], X: Tensor
) -> tuple[float, ...]:
    """Return the distance along each column at which the correlation with the centre is half.

    A nugget is left out. The distances are from 1e-4 of the smallest spread of a column to 1e4
    times the largest. A column along which the correlation never falls so far has the longest.
    The length is 1 where all rows are equal.

    Args:
        kernel: (theta, X1 [n, d], X2 [m, d]) -> [n, m].
        theta: Its hyperparameters, one draw.
        X: [n, d], the rows.
    """
    centre = X.mean(0)
    spreads = X.amax(0) - X.amin(0)
    if not bool((spreads > 0).any()):
        return (1.0,) * X.shape[1]
    decades = spreads[spreads > 0].log10()
    low, high = float(decades.min()) - REACH, float(decades.max()) + REACH
    count = 1 + math.ceil((high - low) * A_DECADE)
    distances = torch.logspace(low, high, count, dtype=X.dtype, device=X.device)
    lengths = []
    for column in range(X.shape[1]):
        beside = centre[None].clone()
        beside[0, column] += 1e-6 * distances[0]
        of_none = kernel(theta, centre[None], beside).flatten()
        tried, length = distances, float(distances[-1])
        for _ in range(PASSES):
            moved = centre.repeat(len(tried), 1)
            moved[:, column] += tried
            correlation = kernel(theta, centre[None], moved).flatten() / of_none
            below = torch.nonzero(correlation < HALF).flatten()
            first = int(below[0]) if len(below) else len(tried) - 1
            length = float(tried[first])
            if first == 0 or not len(below):
                break
            start, end = tried[first - 1 : first + 1].log10().tolist()
            tried = torch.logspace(start, end, FINER, dtype=X.dtype, device=X.device)
        lengths.append(length)
    return tuple(lengths)
