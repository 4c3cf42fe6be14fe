"""Predictions of a Gaussian process on a complete grid, at new cells or anywhere.

Notation as in ``kronecker``: the covariance of the cells has eigenvectors Q_i along each axis, and
the eigenvalues lam. Products with new rows go over one axis of the grid after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...numerics.kronecker import eigen, outer, rotated

CELLS_PER_ROW = 4  # of the grid of new rows, up to which that grid is predicted as a whole
CHUNK_BYTES = 64 * 2**20


def solved(R: Tensor, noise: Tensor, Ks: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return what predictions share: C^-1 R and 1 / lam, both [n_1, ..., n_p], and each Q_i."""
    pairs = [eigen(K) for K in Ks]
    Qs = [Q for _, Q in pairs]
    W = 1 / (outer([values for values, _ in pairs]) + noise)
    a = rotated(W * rotated(R, [Q.mT for Q in Qs]), Qs)
    return a, W, *Qs


def diagonal_of_inverse(W: Tensor, Qs: Sequence[Tensor]) -> Tensor:
    """Return the diagonal of C^-1 on the grid, [n_1, ..., n_p]."""
    return rotated(W, [Q.square() for Q in Qs])


def sums(T: Tensor, factors: Sequence[Tensor], codes: Sequence[Tensor]) -> Tensor:
    """Return the sum over all cells of T times one factor per axis, for each new row.

    Args:
        T: [n_1, ..., n_p].
        factors: B_i [k_i, n_i], for the k_i different levels of new rows along each axis.
        codes: The level of each new row along each axis, [m].

    Returns:
        [m]: for row j, the sum over cells of T[a, b, ...] B_1[j, a] B_2[j, b] ...
    """
    m = len(codes[0])
    if math.prod(len(B) for B in factors) <= CELLS_PER_ROW * m:
        return rotated(T, factors)[tuple(codes)]
    first = max(range(T.ndim), key=lambda i: T.shape[i])
    order = [first, *(i for i in range(T.ndim) if i != first)]
    moved = T.permute(order).reshape(T.shape[first], -1)
    width = max(1, CHUNK_BYTES // (moved.shape[1] * T.element_size()))
    parts = []
    for row in range(0, m, width):
        rows = slice(row, row + width)
        part = factors[first][codes[first][rows]] @ moved
        for i in order[1:]:
            part = part.reshape(len(part), T.shape[i], -1)
            part = (factors[i][codes[i][rows]][:, None] @ part)[:, 0]
        parts.append(part[:, 0])
    return torch.cat(parts) if parts else T.new_zeros(0)


def reduction(W: Tensor, factors: Sequence[Tensor], codes: Sequence[Tensor]) -> Tensor:
    """Return the covariance between new rows that the grid explains, [m, m].

    Args:
        W: 1 / lam, [n_1, ..., n_p].
        factors: B_i Q_i [k_i, n_i] at the different levels of new rows along each axis.
        codes: The level of each new row along each axis, [m].
    """
    m, rest = len(codes[0]), math.prod(W.shape[1:])
    others = torch.ones(m, 1, dtype=W.dtype, device=W.device)
    for B, code in zip(factors[1:], codes[1:], strict=True):
        others = (others[:, :, None] * B[code][:, None]).reshape(m, -1)
    total, width = W.new_zeros(m, m), max(1, CHUNK_BYTES // max(1, m * rest * W.element_size()))
    for a in range(0, W.shape[0], width):
        own = factors[0][codes[0]][:, a : a + width]
        root = W[a : a + width].reshape(-1, rest).sqrt()
        rows = (own[:, :, None] * others[:, None] * root).reshape(m, -1)
        total = torch.addmm(total, rows, rows.mT)
    return total
