"""Conjugate gradients for a symmetric matrix that is known by its products with vectors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


def conjugate_gradients(
    product: Product, b: Tensor, start: Tensor | None = None, *, steps: int, left: float
) -> tuple[Tensor, Tensor]:
    """Return x with A x near b, and the residual b - A x. Hestenes & Stiefel (1952).

    The steps end where |b - A x| is at most ``left`` |b|, or where the curvature along a direction
    is not positive (Steihaug 1983). In the second case x is b itself if no step was taken.

    Args:
        product: The function v [p] -> A v.
        b: The right-hand side, [p].
        start: The first x, [p]; None: 0.
        steps: The largest number of steps.
        left: The share of |b| at which they end.
    """
    x, residual = torch.zeros_like(b), b.clone()
    if start is not None:
        x, residual = start.clone(), b - product(start)
    direction, square = residual.clone(), float(residual @ residual)
    enough = left**2 * float(b @ b)
    for _ in range(steps):
        if square <= enough:
            break
        moved = product(direction)
        curvature = float(direction @ moved)
        if not curvature > 0:
            if not bool(x.any()):
                x, residual = b, b - product(b)
            break
        length = square / curvature
        x = x + length * direction
        residual = residual - length * moved
        before, square = square, float(residual @ residual)
        direction = residual + (square / before) * direction
    return x, residual
