"""The sums over rows that the collapsed bounds and q(u) of sparse GP regression depend on.

The notation is that of ``collapsed_bound``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..runtime.team import Team
from .cholesky import LOG_2PI, cholesky, factor_or_nan

__all__ = ["Projection", "derivative_in_noise", "posterior_of"]


@dataclass(frozen=True, eq=False)
class Projection:
    """The sums over rows that the bounds and q(u) depend on.

    Attributes:
        S: A A' [m, m].
        Ar: A r [m].
        rr: R'r.
        trace: The trace of Knn.
        n: The number of rows.
    """

    S: Tensor
    Ar: Tensor
    rr: Tensor
    trace: Tensor
    n: int | Tensor

    def plus(self, other: Projection) -> Projection:
        """Return the sums over the rows of both."""
        return Projection(
            self.S + other.S,
            self.Ar + other.Ar,
            self.rr + other.rr,
            self.trace + other.trace,
            self.n + other.n,
        )

    def over_ranks(self, team: Team) -> Projection:
        """Return the sums over the rows of all ranks of a team."""
        if team.alone:
            return self
        n = self.rr.new_tensor(float(self.n))
        S, Ar, rr, trace, n = team.symmetric_sum(self.S, self.Ar, self.rr, self.trace, n)
        return Projection(S, Ar, rr, trace, round(float(n)))

    def _quadratic(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return r' (Q + noise I)^-1 r and log|Q + noise I|, where Q = A' A."""
        eye = torch.eye(len(self.S)).to(self.S)
        root = factor_or_nan(eye + self.S / noise)
        e = torch.linalg.solve_triangular(root, self.Ar[:, None], upper=False)[:, 0]
        return (
            self.rr / noise - e.square().sum() / noise.square(),
            2 * root.diagonal().log().sum() + self.n * noise.log(),
        )

    @property
    def gap(self) -> Tensor:
        """tr(Knn - Qnn), the variance that the inducing inputs leave unexplained."""
        return self.trace - self.S.diagonal().sum()

    def lower(self, noise: Tensor) -> Tensor:
        """Return log N(r; 0, Q + s2 I) - tr(Knn - Q) / (2 s2), which is at most log p(y).

        Titsias (2009), equation 9.
        """
        square, log_det = self._quadratic(noise)
        return -0.5 * (square + log_det + self.n * LOG_2PI + self.gap / noise)

    def upper(self, noise: Tensor) -> Tensor:
        """Return an upper bound of log p(y). Titsias (2014).

        It is -n/2 log 2 pi - log|Q + s2 I| / 2 - r' (Q + (s2 + tr(Knn - Q)) I)^-1 r / 2.
        """
        _, log_det = self._quadratic(noise)
        square, _ = self._quadratic(noise + self.gap.clamp_min(0.0))
        return -0.5 * (square + log_det + self.n * LOG_2PI)

    def posterior(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the optimal q(v), where u = L v.

        Returns:
            The mean B^-1 Ar / s2 [m], and a root W [m, m] of the covariance W' W = B^-1.
        """
        return posterior_of(self.S, self.Ar, noise)


def posterior_of(S: Tensor, Ar: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and a root of the covariance of q(v); see ``Projection.posterior``."""
    eye = torch.eye(len(S)).to(S)
    root = cholesky(eye + S / noise, "posterior precision of the inducing variables")
    mean = torch.cholesky_solve(Ar[:, None], root)[:, 0] / noise
    return mean, torch.linalg.solve_triangular(root, eye, upper=False)


def derivative_in_noise(sums: Projection, noise: Tensor, B: Tensor, c: Tensor) -> Tensor:
    """Return the derivative of the lower bound in s2.

    Args:
        sums: The sums over rows.
        noise: The variance s2 of the noise.
        B: The inverse of B in the notation of the module.
        c: B^-1 Ar.
    """
    log_det = (sums.n - len(B) + B.diagonal().sum()) / noise
    square = -sums.rr + (2 * (sums.Ar @ c) - c @ (sums.S @ c) / noise) / noise
    return -0.5 * (log_det + (square - sums.gap) / noise.square())
