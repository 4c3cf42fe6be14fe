"""The search for the places of the highest acquisition value, within bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

NEARBY = 0.05  # sd of candidates around the best row, in widths of the bounds

Value = Callable[[Tensor], Tensor]


def best_places(
    value: Value,
    low: Tensor,
    high: Tensor,
    incumbent: Tensor,
    q: int,
    starts: int,
    candidates: int,
    seed: int,
) -> Tensor:
    """Return the places [q, d] of the highest value that is found.

    Args:
        value: Maps batches of places [b, q, d] to their values [b], with a gradient.
        low: The lower bounds [d].
        high: The upper bounds [d].
        incumbent: The best place so far [d].
        q: The number of places.
        starts: The number of searches.
        candidates: The number of random batches that these start from.
        seed: The seed of the batches.
    """
    width = high - low
    near = ((incumbent - low) / width).clamp(0.0, 1.0)
    drawn = _candidates(near, q, candidates, seed)
    with torch.no_grad():
        values = value(low + width * drawn)
    order = values.nan_to_num(nan=-torch.inf).argsort(descending=True)
    best, highest = drawn[order[0]], float(values[order[0]])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        unit = torch.from_numpy(flat).to(low).reshape(1, q, -1).requires_grad_()
        with torch.enable_grad():
            found = value(low + width * unit)[0]
        (gradient,) = torch.autograd.grad(found, unit)
        slope = gradient.nan_to_num().reshape(-1).double().cpu().numpy()
        return -float(found.detach()), -slope

    for start in drawn[order[:starts]]:
        flat = start.reshape(-1).double().cpu().numpy()
        search = minimize(loss, flat, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * flat.size)
        if -float(search.fun) > highest:
            highest = -float(search.fun)
            best = torch.from_numpy(search.x).to(low).reshape(q, -1)
    return low + width * best


def _candidates(near: Tensor, q: int, count: int, seed: int) -> Tensor:
    """Return batches of points of the unit cube [count, q, d], a fourth of them around ``near``."""
    sobol = torch.quasirandom.SobolEngine(q * len(near), scramble=True, seed=seed)
    drawn = sobol.draw(count, dtype=torch.float64).to(near).reshape(count, q, -1)
    around = count // 4
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(around, q, len(near), generator=generator, dtype=torch.float64).to(near)
    drawn[:around] = (near + NEARBY * steps).clamp(0.0, 1.0)
    return drawn
