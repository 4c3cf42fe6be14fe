"""Laplace's approximation of a latent Gaussian vector f, with a covariance matrix K [n, n].

The notation is that of ``latent_mode``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .laplace_evidence import laplace_log_evidence_under
from .latent_mode import Parameters, RowDensity, require_mode

__all__ = ["DensePrior", "LatentGaussian", "expand_at_mode", "laplace_log_evidence"]

ROWS_OF_ROUGH_STEPS = 200  # fewer rows gain nothing from single precision
MOST_OF_SINGLE = 1e4  # prior variance of f, in variances of a row, that single precision resolves
VAGUE = 1e-6  # the precision of a row, in prior variances of f, that counts as small


@dataclass(frozen=True)
class LatentGaussian:
    """A Gaussian approximation of f given the rows, as predictions need it.

    Attributes:
        weights: The weights a [n], with mean + K a the mean of f.
        precision: W [n], that of a Gaussian row in the place of each row.
        root: L [n, n], where L L' = I + s K s and s is the square root of W.
        downdate: R [n, n], where K - K R K is the covariance of f. It takes the place of L if an
            entry of W is negative.
    """

    weights: Tensor
    precision: Tensor
    root: Tensor
    downdate: Tensor | None = None

    def mean(self, cross: Tensor) -> Tensor:
        """Return the mean of f - mean at m places, given their covariances with the rows [n, m]."""
        return cross.mT @ self.weights

    def covariance_explained(self, cross: Tensor) -> Tensor:
        """Return the prior minus the posterior covariance of the m places, [m, m]."""
        if self.downdate is not None:
            return cross.mT @ self.downdate @ cross
        V = self._whitened(cross)
        return V.mT @ V

    def variance_explained(self, cross: Tensor) -> Tensor:
        """Return the diagonal of ``covariance_explained``, [m]."""
        if self.downdate is not None:
            return (cross * (self.downdate @ cross)).sum(0)
        return self._whitened(cross).square().sum(0)

    def _whitened(self, cross: Tensor) -> Tensor:
        scaled = self.precision.sqrt()[:, None] * cross
        return torch.linalg.solve_triangular(self.root, scaled, upper=False)

    def without_each_row(self, K: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean, less the prior mean, and the variance of each f_i without its own row.

        The Gaussian row of precision W_i is taken out; Vehtari et al. (2016), section 3.
        """
        variance = K.diagonal() - self.variance_explained(K)
        cavity = variance / (1 - self.precision * variance)
        return K @ self.weights - cavity * self.weights, cavity


class DensePrior:
    """N(0, K) with a covariance matrix.

    Args:
        K: [n, n].
    """

    def __init__(self, K: Tensor) -> None:
        self.K = K
        self._single: Tensor | None = None
        self._buffers: tuple[Tensor, Tensor, Tensor] | None = None

    def rough_step(self, W: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return a and h by a factor in single precision; see ``latent_mode.LatentPrior``.

        All steps write to the same memory: to allocate it takes as long as to factor.
        """
        if self.K.dtype != torch.float64 or len(b) < ROWS_OF_ROUGH_STEPS:
            return None
        if not float((W * self.K.diagonal()).max()) < MOST_OF_SINGLE:
            return None
        if self._single is None or self._buffers is None:
            self._single = self.K.float()
            self._buffers = (
                torch.empty_like(self._single),
                torch.empty_like(self._single).mT,
                torch.empty((), dtype=torch.int32, device=b.device),
            )
        B, L, info = self._buffers
        s = W.sqrt().float()
        torch.mul(self._single, s, out=B).mul_(s[:, None])
        B.diagonal().add_(1.0)
        torch.linalg.cholesky_ex(B, out=(L, info))
        right = (s * (self.K @ b).float())[:, None]
        a = b - (s * torch.cholesky_solve(right, L)[:, 0]).double()
        if int(info):
            a = torch.full_like(a, math.nan)
        return a, self.K @ a

    def given(self, W: Tensor, b: Tensor, *, differentiable: bool = False) -> DenseConditioned:
        """Return h given Gaussian rows; see ``latent_mode.LatentPrior``."""
        if differentiable or bool((W < 0).any()):
            M = torch.eye(len(W)).to(self.K) + self.K * W
            h = torch.linalg.solve(M, self.K @ b)
            return DenseConditioned(self.K, W, b - W * h, h)
        L = root_of(identity_plus(self.K, W.sqrt()))
        return _by_root(self.K, W, b, L)


@dataclass(frozen=True)
class DenseConditioned:
    """h ~ N(0, K) given Gaussian rows; see ``latent_mode.Conditioned``.

    Attributes:
        K: [n, n].
        W: [n].
        a: [n].
        h: [n].
        root: L [n, n] of ``LatentGaussian``; None: W may be negative, or there are derivatives.
    """

    K: Tensor
    W: Tensor
    a: Tensor
    h: Tensor
    root: Tensor | None = None

    def half_log_det(self) -> Tensor:
        if self.root is not None:
            return self.root.diagonal().log().sum()
        return downdate(self.K, self.W)[0]

    @cached_property
    def _downdate(self) -> tuple[Tensor, Tensor]:
        """R and the diagonal of ``downdate``."""
        if self.root is not None:
            return downdate_by_root(self.K, self.W, self.root)
        return downdate(self.K, self.W)[1:]

    def variance(self) -> Tensor:
        return self._downdate[1]

    def slopes(self, u: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        R, a = self._downdate[0], self.a
        c = u - R @ (self.K @ u)
        of_K = torch.addr(R, a, a + c, beta=-0.5, alpha=0.5)
        return c, self.K @ c, (torch.addr(of_K, c, a, alpha=0.5),)


def _by_root(K: Tensor, W: Tensor, b: Tensor, L: Tensor) -> DenseConditioned:
    s = W.sqrt()
    a = b - s * torch.cholesky_solve((s * (K @ b))[:, None], L)[:, 0]
    return DenseConditioned(K, W, a, K @ a, L)


def expand_at_mode(
    K: Tensor, mean: Tensor, rows: RowDensity, parameters: Parameters = ()
) -> LatentGaussian:
    """Return Laplace's approximation of f, for predictions by algorithm 3.2.

    Args:
        K: [n, n], the covariance of f.
        mean: [n], its mean.
        rows: The log densities of the rows.
        parameters: Those of ``rows``.

    Raises:
        NumericalError: If there is no finite mode.
    """
    a, _, W = require_mode(DensePrior(K), mean, rows, parameters)
    if bool((W < 0).any()):
        R = downdate(K, W)[1]
        return LatentGaussian(a, W, torch.zeros_like(K), R)
    return LatentGaussian(a, W, root_of(identity_plus(K, W.sqrt())))


def laplace_log_evidence(
    K: Tensor, mean: Tensor, rows: RowDensity, parameters: Parameters = ()
) -> Tensor:
    """Return Laplace's approximation of the log density of all rows; see ``laplace_evidence``.

    Args:
        K: [n, n], the covariance of f.
        mean: [n], its mean.
        rows: The log densities of the rows.
        parameters: Those of ``rows``.
    """
    return laplace_log_evidence_under(DensePrior, (K,), mean, rows, parameters)


def identity_plus(K: Tensor, s: Tensor) -> Tensor:
    """Return B = I + s K s, whose eigenvalues are at least 1."""
    B = (K * s).mul_(s[:, None])
    B.diagonal().add_(1.0)
    return B


def root_of(B: Tensor) -> Tensor:
    """Return the Cholesky factor of B, with NaN on its diagonal if there is none."""
    L, info = torch.linalg.cholesky_ex(B)
    if int(info):
        L.diagonal().fill_(math.nan)
    return L


def downdate(K: Tensor, W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log|I + W K| / 2, R = (I + W K)^-1 W and the diagonal of K - K R K, for any W.

    The first is NaN where the determinant is not positive.
    """
    M = W[:, None] * K + torch.eye(len(W)).to(K)
    sign, half_log_det = torch.linalg.slogdet(M)
    R = torch.linalg.solve(M, torch.diag(W))
    R = 0.5 * (R + R.mT)
    half_log_det = torch.where(sign > 0, 0.5 * half_log_det, math.nan)
    return half_log_det, R, K.diagonal() - (K * (R @ K)).sum(0)


def downdate_by_root(K: Tensor, W: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    """Return R and the diagonal of ``downdate``, given the root L of B, where W >= 0.

    The diagonal is that of s^-1 (I - B^-1) s^-1, except where W is so small that the difference
    would lose its digits.
    """
    s, prior = W.sqrt(), K.diagonal()
    R = torch.cholesky_inverse(L)
    vague = ~(W * prior > VAGUE)
    variance = (1 - R.diagonal()) / W
    R = R.mul_(s[:, None]).mul_(s)
    if bool(vague.any()):
        part = K[:, vague]
        variance[vague] = prior[vague] - (part * (R @ part)).sum(0)
    return R, variance
