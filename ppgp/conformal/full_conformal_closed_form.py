"""Full conformal prediction of a Gaussian process in closed form: no calibration rows, no refits.

The hyperparameters of the GP are fixed. The set holds each candidate y = t whose studentised
residual, once (x*, t) is added to the data, is not among the largest; it is one interval, and
follows from the leave-one-out predictions at x*. It equals the jackknife+ on residuals in units of
the leave-one-out sd (noise included). Papadopoulos (2024); Pion & Vazquez (2024). The drift is by
Dubrule (1983).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..numerics.cholesky import add_diagonal, cholesky, cholesky_and_jitter
from ..runtime.levels import exact_level
from .scores.base import ULPS

BUDGET = 8_000_000  # numbers in the largest temporary
KNOWN = 1e-9  # share of the prior variance below which a posterior variance may be rounding alone


@dataclass(frozen=True)
class LeaveOneOutParts:
    """What leave-one-out predictions at new rows are computed from.

    Attributes:
        a: [n], C^-1 (y - mean).
        d: [n], diagonal of C^-1.
        b: [n, m], the weights of y in the prediction at each new row.
        mean: [m], the predictive mean of y at the new rows.
        variance: [m], the predictive variance of y there, noise included.
        slack: [m], the rounding error of leave-one-out predictions there, where values of y
            repeat; None: 0.
    """

    a: Tensor
    d: Tensor
    b: Tensor
    mean: Tensor
    variance: Tensor
    slack: Tensor | None = None

    @property
    def studentised(self) -> Tensor:
        """Leave-one-out residuals in units of their sd, [n]."""
        return self.a / self.d.sqrt()

    def at(self, columns: slice, ranked: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return leave-one-out predictions at some of the new rows.

        Args:
            columns: Which of the new rows, k of them.
            ranked: The r rows that are left out, one at a time; None: all.

        Returns:
            Means and sds [r, k] of y at the new rows without each ranked row, and that row's
            studentised residual [r, 1].
        """
        rows = slice(None) if ranked is None else ranked
        b, d, a = self.b[rows, columns], self.d[rows, None], self.a[rows, None]
        mean = self.mean[columns] - b * (a / d)
        # where y is known without noise the variance is 0, and rounding may make it negative
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
    """Compute the parts from the covariance matrix of the rows. O(n^3 + n^2 m).

    Leave-one-out means and variances have closed forms (Dubrule 1983; Rasmussen & Williams 2006,
    eq. 5.12). All arguments are tensors of one dtype, in one unit of y: means in this unit,
    covariances in its square.

    Args:
        C: [n, n] covariance of y, noise included.
        residual: [n], y minus the known mean.
        K: [n, m] covariance of y with f at the new rows.
        variance: [m] prior variance of y at the new rows, noise included.
        mean: [m], the known mean there; None: 0.
        drift: Basis functions with unknown coefficients, F [n, p] and F* [m, p] (universal
            kriging); None: no drift.

    Returns:
        The parts at the m new rows.

    Raises:
        NumericalError: If C, or the Gram matrix of the drift, is not positive definite.

    Examples:
        The prediction without row 0 equals that of a fit to the other rows:

        >>> import torch
        >>> from ppgp import conformal
        >>> x, new = torch.arange(6.0), torch.tensor([2.5])
        >>> y = torch.tensor([0.0, 1.0, 0.5, -0.5, -1.0, 0.0])
        >>> C = torch.exp(-((x[:, None] - x) ** 2) / 2) + 0.1 * torch.eye(6)
        >>> K = torch.exp(-((x[:, None] - new) ** 2) / 2)
        >>> parts = conformal.leave_one_out_parts(C, y, K, variance=torch.tensor([1.1]))
        >>> mean, sd, residual = parts.at(slice(None))
        >>> mean.shape, sd.shape, residual.shape
        (torch.Size([6, 1]), torch.Size([6, 1]), torch.Size([6, 1]))
        >>> refitted = K[1:].T @ torch.linalg.solve(C[1:, 1:], y[1:])
        >>> torch.allclose(mean[0], refitted, atol=1e-5)
        True
    """
    L, jitter = cholesky_and_jitter(C, "covariance of the rows")
    # rows are exchangeable with the new one only if it has the jitter too
    jittered, bias = add_diagonal(C, jitter[None]), variance.new_zeros(variance.shape)
    b = torch.cholesky_solve(K, L)
    Q = torch.cholesky_inverse(L)
    condition = _norm(jittered) * _norm(Q)
    if drift is not None:
        F, new = drift
        W = torch.cholesky_solve(F, L)
        G, precision = cholesky_and_jitter(F.mT @ W, "Gram matrix of the drift")
        condition = condition * _norm(G) * _norm(torch.linalg.inv(G))
        Q = Q - W @ torch.cholesky_solve(W.mT, G)
        b = b + W @ torch.cholesky_solve(new.mT - F.mT @ b, G)
        if float(precision):  # as if the coefficients had a prior of this precision
            bias = (new.mT - F.mT @ b).square().sum(0) / precision
    if mean is None:
        mean = torch.zeros_like(variance)
    left = variance + jitter - 2 * (b * K).sum(0) + (b * (jittered @ b)).sum(0) + bias
    b, left = _exact_where_known(C, K, variance, b, left, 2 * jitter)
    slack = _slack(condition, residual, b, mean)
    return LeaveOneOutParts(Q @ residual, Q.diagonal(), b, mean + b.mT @ residual, left, slack)


def _norm(matrix: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrix, 1)


def _slack(condition: Tensor, residual: Tensor, b: Tensor, mean: Tensor) -> Tensor:
    """Return the error that rounding may leave in leave-one-out predictions, [m].

    It is the first-order bound of a linear solve. Where values of y repeat, an end of a set is the
    y of many rows, and would lose them all if it were a rounding error too far inward. Elsewhere
    the error has no effect on coverage, and the result is 0.

    Args:
        condition: The condition number of the covariance of the rows.
        residual: [n], y minus the known mean.
        b: [n, m], the weights of y.
        mean: [m], the known mean.
    """
    eps = torch.finfo(residual.dtype).eps
    ordered = residual.sort().values
    if not bool((ordered.diff() <= ULPS * eps * ordered[1:].abs()).any()):
        return torch.zeros_like(mean)
    size = residual.abs()
    return eps * condition * (mean.abs() + b.abs().mT @ size + size.max())


def _exact_where_known(
    C: Tensor, K: Tensor, variance: Tensor, b: Tensor, left: Tensor, jitter: Tensor
) -> tuple[Tensor, Tensor]:
    """Return weights and variances, exact where the y of a new row is known.

    It is known where the new row is a training row whose y has no noise. Such a row has the
    covariances of row i, and the variance that C has at i, which includes the noise of row i.
    ``jitter`` is the variance that it may have beyond rounding.
    """
    small = left <= KNOWN * variance + jitter
    if not bool(small.any()):
        return b, left
    which = torch.nonzero(small).flatten()
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
    """Compute the parts for C = features prior features' + diag(noise), by Woodbury's identity.

    The cost is O(n M^2 + n M m), and no n x n matrix is formed. The model is Bayesian linear
    regression in M features: sparse GPs, and the last layer of a deep kernel. The prior variance at
    new rows is that of the same model, features* prior features*' + noise*. The identity is that of
    Rasmussen & Williams (2006), eq. A.9. All arguments are tensors of one dtype; noise variances
    are in squared units of y.

    Args:
        features: [n, M], the features of the rows.
        prior: [M, M] prior covariance of the weights.
        noise: [n], noise variances of the rows.
        residual: [n], y minus the known mean.
        new: [m, M], the features of the new rows.
        new_noise: [m], noise variances of the new rows.

    Returns:
        The parts at the m new rows.

    Raises:
        NumericalError: If the prior covariance is not positive definite.

    Examples:
        A line with unknown intercept and slope has the parts that its covariance matrix gives:

        >>> import torch
        >>> from ppgp import conformal
        >>> features = torch.stack([torch.ones(6), torch.arange(6.0)], 1).double()
        >>> new = torch.tensor([[1.0, 2.5]]).double()
        >>> y = torch.tensor([0.0, 1.0, 2.1, 2.9, 4.2, 5.0]).double()
        >>> prior, noise = torch.eye(2).double(), torch.full((6,), 0.1).double()
        >>> low_rank = conformal.leave_one_out_parts_low_rank(
        ...     features, prior, noise, y, new, noise[:1]
        ... )
        >>> dense = conformal.leave_one_out_parts(
        ...     features @ prior @ features.T + noise.diag(),
        ...     y,
        ...     features @ prior @ new.T,
        ...     (new @ prior @ new.T).diagonal() + 0.1,
        ... )
        >>> torch.allclose(low_rank.mean, dense.mean), torch.allclose(low_rank.b, dense.b)
        (True, True)
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
    trace = ((features @ prior) * features).sum() + noise.sum()
    slack = _slack(trace / noise.min(), residual, b, torch.zeros_like(variance))
    return LeaveOneOutParts(a, d, b, b.mT @ residual, variance, slack)


def _chunks(m: int, n: int) -> list[slice]:
    size = max(1, BUDGET // max(n, 1))
    return [slice(i, min(i + size, m)) for i in range(0, m, size)]


def full_interval(
    parts: LeaveOneOutParts, level: float, ranked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the ends (lower, upper), each [m], of the full conformal intervals.

    With alpha = 1 - level and n ranked rows, they are the floor(alpha (n + 1))-th smallest
    mean_-i - |u_i| sd_-i and the floor(alpha (n + 1))-th largest mean_-i + |u_i| sd_-i, and
    infinite where that number is 0. The guarantee needs hyperparameters that do not depend on the
    ranked rows. Papadopoulos (2024).

    Args:
        parts: Of the new rows.
        level: The coverage wanted, a probability in (0, 1).
        ranked: [r], numbers of the rows that are ranked against the new one; None: all.

    Returns:
        The lower and the upper ends, in the units of the y of the parts.

    Raises:
        SettingError: If the level does not lie in (0, 1).

    Examples:
        Where the new row is independent of all others, the ends are those of ranked values |y|:

        >>> import torch
        >>> from ppgp import conformal
        >>> y = torch.tensor([3.0, -1.0, 2.0, -4.0])
        >>> parts = conformal.leave_one_out_parts(
        ...     torch.eye(4), y, torch.zeros(4, 1), variance=torch.ones(1)
        ... )
        >>> for level in (0.6, 0.8, 0.9):
        ...     lower, upper = conformal.full_interval(parts, level)
        ...     print(lower.tolist(), upper.tolist())
        [-3.0] [3.0]
        [-4.0] [4.0]
        [-inf] [inf]
    """
    n = len(parts.a)
    if ranked is not None:
        n = len(ranked)
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
    if parts.slack is not None:
        lower, upper = lower - parts.slack, upper + parts.slack
    return lower, upper


def full_system(parts: LeaveOneOutParts, ranked: Tensor | None = None) -> Tensor:
    """Return the sorted values [m, r] at which the conformal CDF of each new row steps.

    They are mean_-i + sd_-i u_i over the r ranked rows. Pion & Vazquez (2025).

    Args:
        parts: Of the new rows.
        ranked: [r], numbers of the rows that are ranked against the new one; None: all.

    Returns:
        The values, in rising order in each row, in the units of the y of the parts. They are the
        ``values`` of a ``PredictiveSystem``.

    Examples:
        Where the new row is independent of all others, its CDF steps at the values of y:

        >>> import torch
        >>> from ppgp import conformal
        >>> y = torch.tensor([3.0, -1.0, 2.0, -4.0])
        >>> parts = conformal.leave_one_out_parts(
        ...     torch.eye(4), y, torch.zeros(4, 1), variance=torch.ones(1)
        ... )
        >>> values = conformal.full_system(parts)
        >>> values.tolist()
        [[-4.0, -1.0, 2.0, 3.0]]
        >>> system = conformal.PredictiveSystem("none", values=values)
        >>> round(system.cdf([2.5]).item(), 4)  # (3 + 1/2) / (4 + 1)
        0.7
    """
    columns = []
    for chunk in _chunks(len(parts.mean), len(parts.a)):
        mean, sd, u = parts.at(chunk, ranked)
        columns.append(torch.addcmul(mean, sd, u.expand_as(sd)))
    return torch.cat(columns, 1).mT.contiguous().sort(-1).values
