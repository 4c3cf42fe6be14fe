"""Full conformal prediction of a Gaussian process in closed form: no calibration rows, no refits.

For a GP with fixed hyperparameters the set of candidates t whose studentised residual, with (x*, t) added to the data, is
not among the strangest is one interval, found from the leave-one-out predictions at x*. It equals the jackknife+ on residuals
in units of the leave-one-out sd (noise included). Papadopoulos (2024); Pion & Vazquez (2024); Dubrule (1983) for the drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..numerics.cholesky import cholesky
from ..posterior.region import exact_level

BUDGET = 8_000_000  # numbers in the largest temporary
KNOWN = 1e-9  # share of the prior variance below which what is left of it is taken for rounding, if the row is among the data


@dataclass(frozen=True)
class LeaveOneOutParts:
    """What the leave-one-out predictions at new rows are made of.

    Attributes:
        a: [n], C^-1 (y - mean).
        d: [n], diagonal of C^-1.
        b: [n, m], the weights of y in the prediction at each new row.
        mean, variance: [m], of y at the new rows, noise included.
    """

    a: Tensor
    d: Tensor
    b: Tensor
    mean: Tensor
    variance: Tensor

    @property
    def studentised(self) -> Tensor:
        """[n]: leave-one-out residuals in units of their sd."""
        return self.a / self.d.sqrt()

    def at(self, columns: slice, ranked: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Means and sds [r, k] of y at some new rows without each ranked row, and that row's studentised residual [r, 1]."""
        rows = slice(None) if ranked is None else ranked
        b, d, a = self.b[rows, columns], self.d[rows, None], self.a[rows, None]
        mean = self.mean[columns] - b * (a / d)
        # at a row whose y is known without noise the variance is 0 but for rounding, which may put it below
        sd = (self.variance[columns].clamp_min(0.0) + b.square() / d).sqrt()
        return mean, sd, self.studentised[rows, None]


def leave_one_out_parts(
    C: Tensor,
    residual: Tensor,
    K: Tensor,
    variance: Tensor,
    mean: Tensor | None = None,
    drift: tuple[Tensor, Tensor] | None = None,
) -> LeaveOneOutParts:
    """From the covariance matrix of the rows, noise included. O(n^3 + n^2 m).

    Args:
        C: [n, n] covariance of y, noise included.
        residual: [n], y minus the known mean.
        K: [n, m] covariance of y with f at the new rows.
        variance: [m] prior variance of y at the new rows, noise included.
        mean: [m], the known mean there (0 where left out).
        drift: basis functions with unknown coefficients, F [n, p] and F* [m, p] (universal kriging).
    """
    L = cholesky(C, "covariance of the rows")
    b = torch.cholesky_solve(K, L)
    Q = torch.cholesky_inverse(L)
    if drift is not None:
        F, new = drift
        W = torch.cholesky_solve(F, L)
        G = cholesky(F.mT @ W, "Gram matrix of the drift")
        Q = Q - W @ torch.cholesky_solve(W.mT, G)
        b = b + W @ torch.cholesky_solve(new.mT - F.mT @ b, G)
    centre = torch.zeros_like(variance) if mean is None else mean
    left = variance - 2 * (b * K).sum(0) + (b * (C @ b)).sum(0)
    b, left = _known(C, K, variance, b, left)
    return LeaveOneOutParts(Q @ residual, Q.diagonal(), b, centre + b.mT @ residual, left)


def _known(
    C: Tensor, K: Tensor, variance: Tensor, b: Tensor, left: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights and variances, exact where a new row is a row of the data whose y has no noise: its y is then known.

    Such a row has the covariances of row i, and the variance that C has at i, which includes the noise of row i.
    """
    if not bool((left <= KNOWN * variance).any()):
        return b, left
    which = torch.nonzero(left <= KNOWN * variance).flatten()
    nearest = b[:, which].abs().argmax(0)
    close = KNOWN * variance[which]
    same = ((K[:, which] - C[:, nearest]).abs() <= close).all(0)
    same &= (variance[which] - C[nearest, nearest]).abs() <= close
    which, nearest = which[same], nearest[same]
    b, left = b.clone(), left.clone()
    b[:, which] = torch.nn.functional.one_hot(nearest, len(C)).mT.to(b)
    left[which] = 0.0
    return b, left


def leave_one_out_parts_low_rank(
    features: Tensor, prior: Tensor, noise: Tensor, residual: Tensor, new: Tensor, new_noise: Tensor
) -> LeaveOneOutParts:
    """The same for C = features prior features' + diag(noise), by Woodbury: O(n M^2 + n M m), and no n x n matrix.

    A Bayesian linear model in M features: sparse GPs, and the last layer of a deep kernel. The variance at new rows is that
    of the same model, features* prior features*' + noise*.

    Args:
        features, new: [n, M] and [m, M].
        prior: [M, M] prior covariance of the weights.
        noise, new_noise: [n] and [m] variances.
        residual: [n], y minus the known mean.
    """
    M = prior.shape[-1]
    eye = torch.eye(M, dtype=prior.dtype, device=prior.device)
    weighted = features / noise[:, None]
    A = cholesky(
        torch.cholesky_inverse(cholesky(prior, "prior of the weights")) + features.mT @ weighted,
        "precision of the weights",
    )
    half = torch.linalg.solve_triangular(A, weighted.mT, upper=False)  # [M, n]
    posterior = torch.cholesky_solve(eye, A)
    a = residual / noise - half.mT @ (half @ residual)
    d = 1 / noise - half.square().sum(0)
    b = weighted @ (posterior @ new.mT)
    variance = ((new @ posterior) * new).sum(-1) + new_noise
    return LeaveOneOutParts(a, d, b, b.mT @ residual, variance)


def _chunks(m: int, n: int) -> list[slice]:
    size = max(1, BUDGET // max(n, 1))
    return [slice(i, min(i + size, m)) for i in range(0, m, size)]


def full_interval(
    parts: LeaveOneOutParts, level: float, ranked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(lower, upper) [m]: infinite where the ranked rows are too few for the level.

    ``ranked``: which rows are ranked against the new one; None: all. The guarantee needs hyperparameters that do not depend on
    them.
    """
    n = len(parts.a) if ranked is None else len(ranked)
    need = math.floor((1 - exact_level(level)) * (n + 1))
    m = len(parts.mean)
    if need == 0:
        infinite = torch.full_like(parts.mean, torch.inf)
        return -infinite, infinite
    lower, upper = torch.empty_like(parts.mean), torch.empty_like(parts.mean)
    for columns in _chunks(m, n):
        mean, sd, u = parts.at(columns, ranked)
        reach = u.abs() * sd
        lower[columns] = (mean - reach).kthvalue(need, 0).values
        upper[columns] = (mean + reach).kthvalue(n + 1 - need, 0).values
    return lower, upper


def full_system(parts: LeaveOneOutParts, ranked: Tensor | None = None) -> Tensor:
    """[m, r]: the sorted values at which the conformal CDF of each new row steps: mean_-i + sd_-i u_i. Pion & Vazquez (2025)."""
    columns = [
        torch.addcmul(mean, sd, u.expand_as(sd))
        for mean, sd, u in (parts.at(c, ranked) for c in _chunks(len(parts.mean), len(parts.a)))
    ]
    return torch.cat(columns, 1).mT.contiguous().sort(-1).values
