"""Distances between all pairs of some rows, and sums over pairs of squared differences."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from .distance import FEW_COLUMNS, by_product

#: pairs of rows closer than this part of the distance of one of them from the centre are computed
#: by differences, where the product of matrices would leave few digits
NEAR = 1e-3


class RowDistances:
    """The squared distances between the rows of X, under any lengthscales.

    With up to ``FEW_COLUMNS`` columns every difference is exact to its own rounding. With more, a
    product of matrices gives all pairs at once, and those of nearly equal rows are computed again
    by differences. Where so many rows are nearly equal that their differences would take more
    memory than a matrix, all pairs are computed by differences, one column after the other.

    Args:
        X: [n, d], in double precision.

    Attributes:
        given: X.
        X: The rows less their median, [n, d]; a mean would follow an outlier.
    """

    def __init__(self, X: Tensor) -> None:
        self.n, self.d = X.shape
        self.given = X
        self.X = X - X.median(-2, keepdim=True).values
        self.few = self.d <= FEW_COLUMNS

    @cached_property
    def squares(self) -> Tensor:
        """The squared differences in each column, [d, n n], for few columns."""
        columns = self.X.mT
        return (columns.unsqueeze(-1) - columns.unsqueeze(-2)).square().reshape(self.d, -1)

    @cached_property
    def near(self) -> tuple[Tensor, Tensor] | None:
        """The pairs of nearly equal rows, each in both orders; None if they are too many."""
        # NumPy, as a trace of torch's operations would take these numbers for inputs
        X = self.X.detach().cpu().numpy()
        tree = KDTree(X)
        reach = NEAR * np.sqrt(np.square(X).sum(-1))
        counts = tree.query_ball_point(X, reach, return_length=True)  # a row is near itself
        if 2 * self.d * (counts.sum() - self.n) > self.n**2:
            return None
        rows = np.flatnonzero(counts > 1)
        lists = tree.query_ball_point(X[rows], reach[rows])
        i = np.repeat(rows, counts[rows])
        j = np.concatenate([np.empty(0, dtype=np.int64), *lists]).astype(np.int64)
        i, j = i[i != j], j[i != j]
        i, j = np.divmod(np.unique(np.concatenate([i * self.n + j, j * self.n + i])), self.n)
        return torch.from_numpy(i).to(self.X.device), torch.from_numpy(j).to(self.X.device)

    def squared(self, lengthscale: Tensor, fixed: bool = False) -> Tensor:
        """Return |x - x'|^2 under the lengthscale, [n, n] in row-major memory; 0 on the diagonal.

        Args:
            lengthscale: one number [], or one per column [d].
            fixed: whether it is the same at every call. The rows are then taken in its units, so
                that rows count as nearly equal where they are so under it.
        """
        if self.few:
            weight = lengthscale.square().reciprocal().expand(self.d)
            return torch.mv(self.squares.mT, weight).view(self.n, self.n)
        if lengthscale.ndim and fixed:
            return RowDistances(self.X / lengthscale).squared(lengthscale.new_ones(()))
        if self.near is None:
            each = lengthscale.expand(self.d)
            total = self._column(0) / each[0].square()
            for k in range(1, self.d):
                total.addcdiv_(self._column(k), each[k].square())
            return total
        if lengthscale.ndim == 0:
            squared = self._by_product(self.X, self._near_differences)
            return squared / lengthscale.square()
        return self._by_product(self.X / lengthscale, self._near_differences / lengthscale)

    def _column(self, k: int) -> Tensor:
        """Return the squared differences in one column, [n, n]."""
        return (self.X[:, k, None] - self.X[None, :, k]).square_()

    def _by_product(self, A: Tensor, differences: Tensor) -> Tensor:
        squared = by_product(A, A)
        squared.diagonal().zero_()
        if len(differences):
            squared.index_put_(self.near, differences.square().sum(-1))
        return squared

    @cached_property
    def _near_differences(self) -> Tensor:
        """The differences between the rows of each near pair, [pairs, d]."""
        assert self.near is not None
        return self.X[self.near[0]] - self.X[self.near[1]]

    def weighted_squares(self, P: Tensor) -> Tensor:
        """Return sum_ij P_ij (x_ik - x_jk)^2 for each column k, [d].

        Args:
            P: [n, n], symmetric, in row-major memory. Its diagonal does not matter. With many
                columns it is overwritten.
        """
        if self.few:
            return torch.mv(self.squares, P.view(-1))
        if self.near is None:
            flat = P.view(-1)
            return torch.stack([torch.dot(self._column(k).view(-1), flat) for k in range(self.d)])
        P.diagonal().zero_()
        of_near: Tensor | float = 0.0
        if len(self._near_differences):
            of_near = self._near_differences.square().mT @ P[self.near]
            P.index_put_(self.near, P.new_zeros(()))
        product = P @ torch.cat([self.X, torch.ones_like(self.X[:, :1])], -1)
        sums, rows = product[:, :-1], product[:, -1]
        return 2.0 * (rows @ self.X.square() - (self.X * sums).sum(0)) + of_near
