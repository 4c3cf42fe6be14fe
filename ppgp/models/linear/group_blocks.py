"""The matrix of the coefficients of groups, which rows of different groups do not share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Blocks", "inverses", "solved"]

UNROLLED = 3  # coefficients of a block whose equations are written out, faster than LAPACK's


@dataclass(frozen=True)
class Blocks:
    """The matrix Z of the coefficients of groups, which rows of different blocks do not share.

    Attributes:
        block: The block of each row, [n].
        features: The row of Z within its block, [n, m].
        count: The number of blocks B.
    """

    block: Tensor
    features: Tensor
    count: int

    def of_rows(self, u: Tensor) -> Tensor:
        """Return Z u [n], given u [B, m]."""
        return (self.features * u[self.block]).sum(-1)

    def sums(self, r: Tensor) -> Tensor:
        """Return Z' r [B, m], given r [n]."""
        zero = r.new_zeros(self.count, self.features.shape[1])
        return zero.index_add(0, self.block, r[:, None] * self.features)

    def gram(self, w: Tensor) -> Tensor:
        """Return the blocks of Z' W Z [B, m, m], given the diagonal w: [n], or [1] if all equal."""
        if len(w) < len(self.features):  # a constant of the rows, times a number
            return w * self.gram(torch.ones_like(self.features[:, 0]))
        weighted = w[:, None] * self.features
        if self.count == 1:
            return (weighted.mT @ self.features)[None]
        m = self.features.shape[1]
        outer = weighted[:, :, None] * self.features[:, None, :]
        return w.new_zeros(self.count, m, m).index_add(0, self.block, outer)

    def root(self, sd: Tensor, w: Tensor) -> Tensor:
        """Return the Cholesky factors of I + S Z' W Z S [B, m, m], NaN where there are none.

        Args:
            sd: The diagonal of S, [B, m] or [1, m].
            w: The diagonal of W, as in ``gram``.
        """
        return root_of_blocks(_scaled(self.gram(w), sd))


def _scaled(gram: Tensor, sd: Tensor) -> Tensor:
    eye = torch.eye(gram.shape[-1], dtype=sd.dtype, device=sd.device)
    return eye + sd[:, :, None] * gram * sd[:, None, :]


def root_of_blocks(B: Tensor) -> Tensor:
    """Return the Cholesky factors of B [B, m, m], NaN where there are none."""
    if B.shape[-1] > UNROLLED:
        L, info = torch.linalg.cholesky_ex(B)
        return torch.where((info == 0)[:, None, None], L, math.nan)
    m = B.shape[-1]
    zero = torch.zeros_like(B[:, 0, 0])
    root = [[zero] * m for _ in range(m)]
    for j in range(m):
        pivot = B[:, j, j]
        for k in range(j):
            pivot = pivot - root[j][k].square()
        root[j][j] = pivot.sqrt()  # NaN for a negative one
        for i in range(j + 1, m):
            entry = B[:, i, j]
            for k in range(j):
                entry = entry - root[i][k] * root[j][k]
            root[i][j] = entry / root[j][j]
    return _stacked(root)


def solved(root: Tensor, b: Tensor) -> Tensor:
    """Return the solutions [B, m] of L L' x = b, given L [B, m, m] and b [B, m]."""
    m = b.shape[-1]
    if m > UNROLLED:
        return torch.cholesky_solve(b[:, :, None], root)[:, :, 0]
    x = list(b.unbind(-1))
    for i in range(m):
        for k in range(i):
            x[i] = x[i] - root[:, i, k] * x[k]
        x[i] = x[i] / root[:, i, i]
    for i in reversed(range(m)):
        for k in range(i + 1, m):
            x[i] = x[i] - root[:, k, i] * x[k]
        x[i] = x[i] / root[:, i, i]
    return torch.stack(x, -1)


def inverses(root: Tensor) -> Tensor:
    """Return the inverses of L L' [B, m, m], given L [B, m, m]."""
    m = root.shape[-1]
    if m > UNROLLED:
        return torch.cholesky_inverse(root)
    zero = torch.zeros_like(root[:, 0, 0])
    of_root = [[zero] * m for _ in range(m)]
    for j in range(m):
        of_root[j][j] = 1 / root[:, j, j]
        for i in range(j + 1, m):
            entry = root[:, i, j] * of_root[j][j]
            for k in range(j + 1, i):
                entry = entry + root[:, i, k] * of_root[k][j]
            of_root[i][j] = -entry / root[:, i, i]
    found = [[zero] * m for _ in range(m)]
    for i in range(m):
        for j in range(i + 1):
            entry = of_root[i][i] * of_root[i][j]
            for k in range(i + 1, m):
                entry = entry + of_root[k][i] * of_root[k][j]
            found[i][j] = found[j][i] = entry
    return _stacked(found)


def _stacked(entries: list[list[Tensor]]) -> Tensor:
    """Return matrices [B, m, m] of entries [B] each."""
    m = len(entries)
    return torch.stack([one for row in entries for one in row], -1).unflatten(-1, (m, m))
