"""Squared distances between rows, exact where that is cheap, by one matrix product where it is not."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

FAR = 1e3  # lengthscales: up to here the matrix product is right to 1e-9
FEW_COLUMNS = 3  # up to here, summing differences column by column is as fast as the matrix product, and exact
TINY = 1e-36  # keeps the square root differentiable at distance 0, where every kernel's slope in r^2 is multiplied by 0


def squared_distance(X1: Tensor, X2: Tensor | None, lengthscale: Tensor) -> Tensor:
    """|x - x'|^2 / lengthscale^2, [*batch, n1, n2]; lengthscale is [*batch, 1, 1].

    With many columns it uses |a|^2 + |b|^2 - 2ab of centred rows, in double precision whatever theirs is: an absolute error of
    about 1e-16 times the squared spread of X in lengthscales, which for rows in single precision is less than their own rounding.
    Columns that spread further than ``FAR`` lengthscales are summed by differences, where the values are at hand: inside a
    compiled density they are not. The diagonal of X2=None is exactly 0.
    """
    other = X1 if X2 is None else X2
    d = X1.shape[-1]
    if d <= FEW_COLUMNS:
        return _by_differences(X1, other, range(d)) / lengthscale.square()
    dtype, A = X1.dtype, X1.double()
    B = A if X2 is None else other.double()
    centre = B.mean(-2, keepdim=True)
    A = A - centre
    B = A if X2 is None else B - centre
    wide = far_columns(A, B, lengthscale)
    near = [k for k in range(d) if k not in wide]
    squared = by_product(A, B) if not wide else _by_differences(A, B, wide)
    if wide and near:
        squared = squared + by_product(A[..., near], B[..., near]).clamp_min(0.0)
    if dtype != torch.float64:
        squared = squared.to(dtype).clamp_min(0.0)
    if X2 is None:
        squared = squared.masked_fill(
            torch.eye(X1.shape[-2], dtype=torch.bool, device=X1.device), 0.0
        )
    return (
        squared / lengthscale.square()
    )  # last: of rows that no hyperparameter touches, a graph has the rest once and for all


def by_product(A: Tensor, B: Tensor) -> Tensor:
    """|a - b|^2 by one matrix product."""
    a, b = A.square().sum(-1, keepdim=True), B.square().sum(-1, keepdim=True)
    left, right = (
        torch.cat([-2.0 * A, a, torch.ones_like(a)], -1),
        torch.cat([B, torch.ones_like(b), b], -1),
    )
    return left @ right.mT


def _by_differences(A: Tensor, B: Tensor, columns: Iterable[int]) -> Tensor:
    """|a - b|^2 over some columns, each difference exact to its own rounding."""
    total: Tensor | None = None
    for k in columns:
        difference = A[..., :, None, k] - B[..., None, :, k]
        square = difference * difference
        total = square if total is None else total + square
    assert total is not None
    return total


def far_columns(A: Tensor, B: Tensor, lengthscale: Tensor) -> list[int]:
    """Columns of centred rows that reach further than ``FAR`` lengthscales from 0; none where a trace or a vmap hides the values."""
    with torch.no_grad():
        reach = torch.maximum(A.abs().amax(-2), B.abs().amax(-2)).reshape(-1, A.shape[-1]).amax(0)
        try:
            return torch.nonzero(reach > FAR * lengthscale.min()).flatten().tolist()
        except RuntimeError:
            return []


def distance(X1: Tensor, X2: Tensor | None, lengthscale: Tensor) -> Tensor:
    """|x - x'| / lengthscale with slope 0 (not infinity) at 0."""
    squared = squared_distance(X1, X2, lengthscale)
    return squared.clamp_min(TINY).sqrt()
