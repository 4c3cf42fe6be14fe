"""The matrix of the coefficients of groups, which rows of different groups do not share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Blocks", "solved"]


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
    L, info = torch.linalg.cholesky_ex(B)
    return torch.where((info == 0)[:, None, None], L, math.nan)


def solved(root: Tensor, b: Tensor) -> Tensor:
    """Return the solutions [B, m] of L L' x = b, given L [B, m, m] and b [B, m]."""
    return torch.cholesky_solve(b[:, :, None], root)[:, :, 0]
