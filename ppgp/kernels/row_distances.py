"""Distances between all pairs of some rows, and sums over pairs of squared differences."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from .distance import FEW_COLUMNS, by_product

#: pairs of rows closer than this part of the spread of X are computed by differences, where the
#: product of matrices would leave few digits
NEAR = 1e-3


class RowDistances:
    """The squared distances between the rows of X, under any lengthscales.

    With up to ``FEW_COLUMNS`` columns every difference is exact to its own rounding. With more, a
    product of matrices gives all pairs at once, and those of nearly equal rows are computed again
    by differences.

    Args:
        X: [n, d], in double precision.

    Attributes:
        given: X.
        X: The centred rows, [n, d].
    """

    def __init__(self, X: Tensor) -> None:
        self.n, self.d = X.shape
        self.given = X
        self.X = X - X.mean(-2, keepdim=True)
        self.few = self.d <= FEW_COLUMNS

    @cached_property
    def squares(self) -> Tensor:
        """The squared differences in each column, [d, n n], for few columns."""
        columns = self.X.mT
        return (columns.unsqueeze(-1) - columns.unsqueeze(-2)).square().reshape(self.d, -1)

    @cached_property
    def near(self) -> tuple[Tensor, Tensor] | None:
        """The pairs of nearly equal rows, each in both orders; None if there are none."""
        # NumPy, as a trace of torch's operations would take these numbers for inputs
        X = self.X.detach().cpu().numpy()
        reach = NEAR * np.sqrt(np.square(X).sum(-1).max())
        pairs = KDTree(X).query_pairs(reach, output_type="ndarray").astype(np.int64)
        if not len(pairs):
            return None
        i, j = (torch.from_numpy(np.ascontiguousarray(side)) for side in pairs.T)
        i, j = i.to(self.X.device), j.to(self.X.device)
        return torch.cat([i, j]), torch.cat([j, i])

    def squared(self, lengthscale: Tensor) -> Tensor:
        """Return |x - x'|^2 under the lengthscale, [n, n] in row-major memory; 0 on the diagonal.

        Args:
            lengthscale: one number [], or one per column [d].
        """
        if self.few:
            weight = lengthscale.square().reciprocal().expand(self.d)
            return torch.mv(self.squares.mT, weight).view(self.n, self.n)
        if lengthscale.ndim == 0:
            squared = self._by_product(self.X, self._near_differences)
            return squared / lengthscale.square()
        return self._by_product(self.X / lengthscale, self._near_differences / lengthscale)

    def _by_product(self, A: Tensor, differences: Tensor) -> Tensor:
        squared = by_product(A, A)
        squared.diagonal().zero_()
        if self.near is not None:
            squared.index_put_(self.near, differences.square().sum(-1))
        return squared

    @cached_property
    def _near_differences(self) -> Tensor:
        """The differences between the rows of each near pair, [pairs, d]."""
        if self.near is None:
            return self.X[:0]
        return self.X[self.near[0]] - self.X[self.near[1]]

    def weighted_squares(self, P: Tensor) -> Tensor:
        """Return sum_ij P_ij (x_ik - x_jk)^2 for each column k, [d].

        Args:
            P: [n, n], symmetric, in row-major memory. Its diagonal does not matter. With many
                columns it is overwritten.
        """
        if self.few:
            return torch.mv(self.squares, P.view(-1))
        P.diagonal().zero_()
        of_near: Tensor | float = 0.0
        if self.near is not None:
            of_near = self._near_differences.square().mT @ P[self.near]
            P.index_put_(self.near, P.new_zeros(()))
        product = P @ torch.cat([self.X, torch.ones_like(self.X[:, :1])], -1)
        sums, rows = product[:, :-1], product[:, -1]
        return 2.0 * (rows @ self.X.square() - (self.X * sums).sum(0)) + of_near
