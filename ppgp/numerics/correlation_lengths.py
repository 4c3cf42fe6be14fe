"""How far a kernel correlates along each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

__all__ = ["correlation_lengths"]

HALF = 0.5
DISTANCES = 121  # from 1e-4 to 1e4 spreads of the rows, 15 to a decade


def correlation_lengths(
    kernel: Callable[..., Tensor], theta: Mapping[str, Tensor], X: Tensor
) -> tuple[float, ...]:
    """Return the distance along each column at which the correlation with the centre is half.

    A nugget is left out. A column along which the correlation never falls so far has the longest
    distance, 1e4 times the spread of the rows.

    Args:
        kernel: (theta, X1 [n, d], X2 [m, d]) -> [n, m].
        theta: Its hyperparameters, one draw.
        X: [n, d], the rows, of which at least two differ.
    """
    centre = X.mean(0)
    spread = (X.amax(0) - X.amin(0)).amax()
    distances = torch.logspace(-4, 4, DISTANCES, dtype=X.dtype, device=X.device) * spread
    lengths = []
    for column in range(X.shape[1]):
        moved = centre.repeat(DISTANCES, 1)
        moved[:, column] += distances
        beside = centre[None].clone()
        beside[0, column] += 1e-6 * distances[0]
        of_none = kernel(theta, centre[None], beside).flatten()
        correlation = kernel(theta, centre[None], moved).flatten() / of_none
        below = torch.nonzero(correlation < HALF).flatten()
        first = int(below[0]) if len(below) else DISTANCES - 1
        lengths.append(float(distances[first]))
    return tuple(lengths)
