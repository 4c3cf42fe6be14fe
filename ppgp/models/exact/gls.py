"""Generalised least squares, y ~ N(F beta, C) with an unknown beta, and kriging with it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import NumericalError, counted
from ...numerics.cholesky import at_least_rounding, cholesky
from ...numerics.triangles import solved

ENOUGH = 1e-10  # F is rank-deficient if a diagonal entry of R is below this share of the largest


class Solved(NamedTuple):
    """The factors that every prediction from y ~ N(F beta, C) with unknown beta needs.

    Leading axes are batches.

    Attributes:
        L: [*batch, n, n], the Cholesky factor, C = L L'.
        w: [*batch, n, 1], L^-1 r.
        H: [*batch, n, p], L^-1 F.
        basis: [*batch, n, p], orthonormal columns with H = basis R.
        R: [*batch, p, p], upper triangular.
        beta: [*batch, p, 1], the generalised least-squares estimate; its covariance is (R'R)^-1.
    """

    L: Tensor
    w: Tensor
    H: Tensor
    basis: Tensor
    R: Tensor
    beta: Tensor

    def at(
        self, K: Tensor, new: Tensor, prior: Tensor, joint: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance of f at new places, by universal kriging.

        The variance is K** - K*'C^-1K* + S'(F'C^-1F)^-1 S with S = F*' - F'C^-1K*. Cressie (1993),
        section 3.4.

        Args:
            K: [*batch, n, m], the covariance of the rows with f at the new places.
            new: [*batch, m, p], the functions of the trend there.
            prior: [*batch, m], the prior variance of f there, or [*batch, m, m], its covariance, if
                ``joint``.
            joint: Whether to return the covariance between the new places.

        Returns:
            The mean [*batch, m], and the variance [*batch, m] or the covariance [*batch, m, m].
        """
        V = solved(self.L, K)
        S = new - V.mT @ self.H
        mean = (V.mT @ self.w + S @ self.beta).squeeze(-1)
        T = torch.linalg.solve_triangular(self.R.mT, S.mT, upper=False)
        if joint:
            return mean, prior - V.mT @ V + T.mT @ T
        variance = prior - V.square().sum(-2)
        variance = at_least_rounding(variance, prior)
        return mean, variance + T.square().sum(-2)

    def trend(self) -> tuple[Tensor, Tensor]:
        """Return beta [*batch, p] and a root [*batch, p, p] of its covariance (F'C^-1F)^-1."""
        eye = torch.eye(self.R.shape[-1], dtype=self.R.dtype, device=self.R.device)
        return self.beta.squeeze(-1), torch.linalg.solve_triangular(self.R, eye, upper=True)

    def ahead(self, w: Tensor, H: Tensor) -> tuple[Tensor, Tensor]:
        """Return the residuals of k further rows, each given the rows before it, and their sds.

        Recursive least squares on whitened rows. Brown, Durbin & Evans (1975), equation 4.

        Args:
            w: [*batch, k, 1], the whitened values of the further rows.
            H: [*batch, k, p], their whitened trend.

        Returns:
            The residuals [*batch, k], in units in which the noise of a whitened row has an sd of 1,
            and their sds [*batch, k], which are at least 1.
        """
        beta, root = self.beta, self.trend()[1]
        P = root @ root.mT
        residuals, sds = [], []
        for i in range(w.shape[-2]):
            h = H[..., i : i + 1, :]
            Ph = P @ h.mT
            variance = 1.0 + h @ Ph
            residual = w[..., i : i + 1, :] - h @ beta
            beta = beta + Ph @ residual / variance
            P = P - Ph @ Ph.mT / variance
            residuals.append(residual[..., 0, 0])
            sds.append(variance[..., 0, 0].sqrt())
        return torch.stack(residuals, -1), torch.stack(sds, -1)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return residuals and variances of each row given the other rows, [*batch, n] each.

        beta is estimated anew without each row. The residual is a / d and the variance is 1 / d,
        with a = Qr and d = diag Q. Dubrule (1983).
        """
        U = torch.linalg.solve_triangular(self.L.mT, self.basis, upper=True)
        residual = self.w - self.H @ self.beta
        a = torch.linalg.solve_triangular(self.L.mT, residual, upper=True).squeeze(-1)
        whole = torch.cholesky_inverse(self.L).diagonal(dim1=-2, dim2=-1)
        # a row that alone determines a coefficient has d = 0 up to rounding: almost any value
        d = at_least_rounding(whole - U.square().sum(-1), whole)
        return a / d, 1 / d


def solve(C: Float[Tensor, "*batch n n"], r: Float[Tensor, ...], F: Float[Tensor, ...]) -> Solved:
    """Factor C and fit the trend by generalised least squares, in O(n^3).

    Args:
        C: [*batch, n, n], the covariance.
        r: [..., n], the values; it may lack the leading axes of C.
        F: [..., n, p], the functions of the trend; it may lack the leading axes of C.

    Raises:
        NumericalError: If C is not positive definite, or F does not have full rank.
    """
    return solve_given(cholesky(C, "covariance of the training rows"), r, F)


def solve_given(L: Tensor, r: Tensor, F: Tensor) -> Solved:
    """Fit the trend by generalised least squares, given the factor L of C, in O(n^2).

    Args:
        L: [*batch, n, n].
        r: See ``solve``.
        F: See ``solve``.

    Raises:
        NumericalError: If F does not have full rank.
    """
    w = torch.linalg.solve_triangular(L, r.unsqueeze(-1), upper=False)
    H = torch.linalg.solve_triangular(L, F.expand(*L.shape[:-1], F.shape[-1]), upper=False)
    basis, R = torch.linalg.qr(H)
    if F.shape[-1]:
        size = R.diagonal(dim1=-2, dim2=-1).abs()
        if F.shape[-1] > F.shape[-2] or bool((size.amin(-1) <= ENOUGH * size.amax(-1)).any()):
            rows, columns = counted(F.shape[-2], "row"), counted(F.shape[-1], "column")
            raise NumericalError(
                "rows at which the columns of the drift are linearly independent",
                f"{rows} for {columns}, or rows on one line",
                "use more neighbours, more rows, or a simpler drift",
            )
    beta = torch.linalg.solve_triangular(R, basis.mT @ w, upper=True)
    return Solved(L, w, H, basis, R, beta)
