"""Distances between all pairs of some rows, and sums over pairs of squared differences."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from .distance import FEW_COLUMNS, NEAR, far_columns

#: lengthscales up to which a column takes part in a matrix product; an exponential kernel of rows
#: that are close in such a column needs more digits than a smooth one
REACH = 1e1
#: share of pairs that are close in one column, and not equal, from which its rows come in bursts;
#: of a normal distribution it is 0.002
BURSTS = 0.05


class RowDistances:
    """The squared distances between the rows of X, under any lengthscales.

    With up to ``FEW_COLUMNS`` columns every difference is exact to its own rounding. With more, a
    product of matrices gives all pairs at once, and those of nearly equal rows are computed again
    by differences. Where so many rows are nearly equal that their differences would take more
    memory than a matrix, all pairs are computed by differences, one column after the other. So are
    columns in which rows come in bursts, whose lengthscale may be that of a burst, and columns that
    reach over more than ``REACH`` lengthscales. Inside a compiled density the lengthscales are not
    known and the latter stay in the product: squared distances then have an absolute error of about
    1e-16 times the square of the reach in lengthscales.

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
        self._of_columns: dict[tuple[int, ...], RowDistances] = {}

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

    def squared(self, lengthscale: Tensor, fixed: bool = False, times: float = 1.0) -> Tensor:
        """Return |x - x'|^2 under the lengthscale, [n, n] in row-major memory; 0 on the diagonal.

        Args:
            lengthscale: One number [], or one per column [d].
            fixed: Whether it is the same at every call. The rows are then taken in its units, so
                that rows count as nearly equal where they are so under it.
            times: A number that multiplies the result, which costs no pass over the matrix.
        """
        if self.few:
            weight = lengthscale.pow(-2).expand(self.d)
            return torch.mv((times * self.squares).mT, weight).view(self.n, self.n)
        if lengthscale.ndim and fixed:
            own = RowDistances(self.X / lengthscale)
            return own.squared(lengthscale.new_ones(()), times=times)
        each = lengthscale.expand(self.d)
        wide, others = self._wide_columns(lengthscale)
        if wide:
            first, *rest = wide
            total = self._column(first) * (times / each[first].square())
            for k in rest:
                total.addcdiv_(self._column(k), each[k].square(), value=times)
            if others:
                total += self._only(others).squared(each[others], times=times)
            return total
        if lengthscale.ndim == 0:
            # last, so that a compiled graph computes the part without hyperparameters only once
            return self._by_product(torch.ones_like(self.X[0]), times) / lengthscale.square()
        return self._by_product(lengthscale.pow(-2), times)

    def _wide_columns(self, lengthscale: Tensor) -> tuple[list[int], list[int]]:
        """Return the columns to sum by differences, and the others."""
        if self.near is None:
            return list(range(self.d)), []
        scaled = self.X / lengthscale
        far = far_columns(scaled, scaled, lengthscale.new_ones(()), REACH)
        wide = [k for k in range(self.d) if k in far or k in self._in_bursts]
        return wide, [k for k in range(self.d) if k not in wide]

    @cached_property
    def _in_bursts(self) -> set[int]:
        """The columns in which many pairs are close beside the reach, and not equal."""
        X = np.sort(self.X.detach().cpu().numpy(), axis=0)
        found = set()
        for k, x in enumerate(X.T):
            reach = NEAR * np.abs(x).max()
            close = np.searchsorted(x, x + reach, "right") - np.searchsorted(x, x, "right")
            if close.sum() > BURSTS * self.n * (self.n - 1) / 2:
                found.add(k)
        return found

    def _only(self, columns: list[int]) -> RowDistances:
        """Return the distances of the rows in some columns."""
        key = tuple(columns)
        if key not in self._of_columns:
            self._of_columns[key] = RowDistances(self.X[:, columns])
        return self._of_columns[key]

    def _column(self, k: int) -> Tensor:
        """Return the squared differences in one column, [n, n]."""
        return (self.X[:, k, None] - self.X[None, :, k]).square_()

    def _by_product(self, weights: Tensor, times: float) -> Tensor:
        """Return times sum_k weights_k (x_ik - x_jk)^2 by one matrix product.

        The products with ``times`` hold constants alone, so a compiled graph stores them.
        """
        norms = torch.mv(times * self.X.square(), weights)
        ones = torch.ones_like(self.X[:, :1])
        left = torch.cat([(-2.0 * times * self.X) * weights, ones, norms.unsqueeze(-1)], -1)
        right = torch.cat([self._columns_and_ones[:-1], norms.unsqueeze(0), ones.mT], 0)
        squared = left @ right
        squared.diagonal().zero_()
        if len(self._near_squares):
            squared.index_put_(self.near, torch.mv(times * self._near_squares, weights))
        return squared

    @cached_property
    def _columns_and_ones(self) -> Tensor:
        """The columns of X as rows, and a row of ones, [d + 1, n]."""
        return torch.cat([self.X.mT, torch.ones_like(self.X[:, :1]).mT], 0)

    @cached_property
    def _near_squares(self) -> Tensor:
        """The squared differences between the rows of each near pair, [pairs, d]."""
        assert self.near is not None
        return (self.X[self.near[0]] - self.X[self.near[1]]).square()

    def weighted_squares(self, P: Tensor, lengthscale: Tensor) -> Tensor:
        """Return sum_ij P_ij (x_ik - x_jk)^2 for each column k, [d].

        Args:
            P: [n, n], symmetric, in row-major memory. Its diagonal does not matter. With many
                columns it is overwritten.
            lengthscale: [d], those of P, by which columns are summed by differences.
        """
        if self.few:
            return torch.mv(self.squares, P.view(-1))
        wide, others = self._wide_columns(lengthscale)
        if wide:
            flat = P.view(-1)
            sums = {k: torch.dot(self._column(k).view(-1), flat) for k in wide}
            if others:
                of_others = self._only(others).weighted_squares(P, lengthscale[others])
                sums |= dict(zip(others, of_others, strict=True))
            return torch.stack([sums[k] for k in range(self.d)])
        P.diagonal().zero_()
        of_near: Tensor | float = 0.0
        if len(self._near_squares):
            of_near = self._near_squares.mT @ P[self.near]
            P.index_put_(self.near, P.new_zeros(()))
        # a product with few rows on the left takes half the time of one with few columns on the
        # right
        sums, rows = (self._columns_and_ones @ P).split([self.d, 1])
        # P is symmetric up to the rounding of the product of matrices, which divisions by small
        # distances have enlarged; sums over rows alone would multiply it by squares of X
        rows = 0.5 * (rows + P.sum(-1))
        columns = self._columns_and_ones[:-1]
        moments = torch.addcmul(sums, columns, rows, value=-1)
        return ((-2.0 * columns) * moments).sum(-1) + of_near
