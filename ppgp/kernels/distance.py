"""Distances between rows: by differences for few columns, by one matrix product for many."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

#: pairs of rows closer than this part of their distance from the centre are computed by
#: differences, where the product of matrices would leave few digits
NEAR = 1e-3
FAR = 1e3  # lengthscales up to which the matrix product is accurate to 1e-9
#: number of columns up to which summing differences by column, which is exact, is as fast
FEW_COLUMNS = 3
#: keeps the square root differentiable at distance 0, where its slope is multiplied by 0
TINY = 1e-36


def squared_distance(X1: Tensor, X2: Tensor | None, lengthscale: Tensor) -> Tensor:
    """Return |x - x'|^2 / lengthscale^2, [*batch, n1, n2].

    With many columns it is |a|^2 + |b|^2 - 2ab of centred rows, always in double precision. The
    absolute error is about 1e-16 times the squared spread of X in lengthscales, which for rows in
    single precision is less than their own rounding. Columns that spread over more than ``FAR``
    lengthscales, and pairs of rows that are close beside their distance from the centre, are summed
    by differences, unless their values are not known (inside a compiled density). For X2=None the
    diagonal is exactly 0.

    Args:
        X1: Rows [*b, n1, d].
        X2: Rows [*b, n2, d]; None means X1.
        lengthscale: [*batch, 1, 1].
    """
    other = X1 if X2 is None else X2
    d = X1.shape[-1]
    if d <= FEW_COLUMNS:
        return _by_differences(X1, other, range(d)) / lengthscale.square()
    dtype = X1.dtype
    A = X1.double()
    if X2 is None:
        A = B = A - A.mean(-2, keepdim=True)
    else:
        B = other.double()
        centre = B.mean(-2, keepdim=True)
        A, B = A - centre, B - centre
    wide = far_columns(A, B, lengthscale)
    near = [k for k in range(d) if k not in wide]
    if wide:
        squared = _by_differences(A, B, wide)
        if near:
            squared = squared + _by_product(A[..., near], B[..., near], X2 is None).clamp_min(0.0)
    else:
        squared = _by_product(A, B, X2 is None)
    if dtype != torch.float64:
        squared = squared.to(dtype).clamp_min(0.0)
    if X2 is None:
        same = torch.eye(X1.shape[-2], dtype=torch.bool, device=X1.device)
        squared = squared.masked_fill(same, 0.0)
    # last, so that a compiled graph computes the part without hyperparameters only once
    return squared / lengthscale.square()


def _by_product(A: Tensor, B: Tensor, same: bool) -> Tensor:
    """Return |a - b|^2 by one matrix product, and of close pairs by differences, [*b, n1, n2].

    Args:
        A: Centred rows [*b, n1, d].
        B: Centred rows [*b, n2, d].
        same: Whether the rows are the same; their diagonal is left as it is.
    """
    a, b = A.square().sum(-1, keepdim=True), B.square().sum(-1, keepdim=True)
    left = torch.cat([-2.0 * A, a, torch.ones_like(a)], -1)
    right = torch.cat([B, torch.ones_like(b), b], -1)
    squared = left @ right.mT
    with torch.no_grad():
        close = squared < NEAR**2 * (a + b.mT)
        if same:
            close = close & ~torch.eye(A.shape[-2], dtype=torch.bool, device=A.device)
        try:
            places = torch.nonzero(close, as_tuple=True)
            count = len(places[0])
        except RuntimeError:  # under a trace or a vmap, which hides the values
            return squared
    if count == 0:
        return squared
    if count * A.shape[-1] > squared.numel():
        return _by_differences(A, B, range(A.shape[-1]))
    batch = squared.shape[:-2]
    *first, i, j = places
    of_a = A.expand(*batch, *A.shape[-2:])[(*first, i)]
    of_b = B.expand(*batch, *B.shape[-2:])[(*first, j)]
    return squared.index_put(places, (of_a - of_b).square().sum(-1))


def _by_differences(A: Tensor, B: Tensor, columns: Iterable[int]) -> Tensor:
    """Return |a - b|^2 over some columns, each difference exact to its own rounding."""
    total: Tensor | None = None
    of_a, of_b = A.unsqueeze(-2).unbind(-1), B.unsqueeze(-3).unbind(-1)
    for k in columns:
        difference = of_a[k] - of_b[k]
        square = difference * difference
        total = square if total is None else total + square
    assert total is not None
    return total


def far_columns(A: Tensor, B: Tensor, lengthscale: Tensor, most: float = FAR) -> list[int]:
    """Return the columns of centred rows that reach further than ``most`` lengthscales from 0.

    None are returned under a trace or a vmap, which hides the values.
    """
    with torch.no_grad():
        reach = torch.maximum(A.abs().amax(-2), B.abs().amax(-2)).reshape(-1, A.shape[-1]).amax(0)
        try:
            return torch.nonzero(reach > most * lengthscale.min()).flatten().tolist()
        except RuntimeError:
            return []


def distance(X1: Tensor, X2: Tensor | None, lengthscale: Tensor) -> Tensor:
    """Return |x - x'| / lengthscale, with slope 0 (not infinity) at 0."""
    squared = squared_distance(X1, X2, lengthscale)
    return squared.clamp_min(TINY).sqrt()
