"""Squared distances between rows, exact where that is cheap, by one matrix product where it is not."""

from __future__ import annotations

import torch
from torch import Tensor

FEW_COLUMNS = 3  # up to here, summing differences column by column is as fast as the matrix product, and exact
TINY = 1e-36  # keeps the square root differentiable at distance 0, where every kernel's slope in r^2 is multiplied by 0


def squared_distance(X1: Tensor, X2: Tensor | None, lengthscale: Tensor) -> Tensor:
    """|x - x'|^2 / lengthscale^2, [*batch, n1, n2]; lengthscale is [*batch, 1, 1].

    With many columns it uses |a|^2 + |b|^2 - 2ab of centred rows: an absolute error of about 1e-15 times the squared spread
    of X in lengthscales, of either sign (in float32 about 1e-7 times it). A kernel smooth in r^2 does not see it; one of r itself sees
    its square root where a row of X2 lies on one of X1. The diagonal of X2=None is exactly 0.
    """
    other = X1 if X2 is None else X2
    if X1.shape[-1] <= FEW_COLUMNS:
        difference = X1[..., :, None, 0] - other[..., None, :, 0]
        total = difference * difference
        for k in range(1, X1.shape[-1]):
            difference = X1[..., :, None, k] - other[..., None, :, k]
            total = total + difference * difference
        return total / lengthscale.square()
    centre = other.mean(-2, keepdim=True)
    A = X1 - centre
    B = A if X2 is None else other - centre
    a, b = A.square().sum(-1, keepdim=True), B.square().sum(-1, keepdim=True)
    squared = torch.cat([-2.0 * A, a, torch.ones_like(a)], -1) @ torch.cat([B, torch.ones_like(b), b], -1).mT
    if X2 is None:
        squared = squared.masked_fill(torch.eye(X1.shape[-2], dtype=torch.bool, device=X1.device), 0.0)
    return squared / lengthscale.square()  # last: of rows that no hyperparameter touches, a graph has the rest once and for all


def distance(X1: Tensor, X2: Tensor | None, lengthscale: Tensor) -> Tensor:
    """|x - x'| / lengthscale with slope 0 (not infinity) at 0."""
    squared = squared_distance(X1, X2, lengthscale)
    return squared.clamp_min(TINY).sqrt()
