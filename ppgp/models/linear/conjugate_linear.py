"""The exact posterior of a linear model with Gaussian noise.

It is conjugate given the noise variance, and one-dimensional in the noise variance. With Phi [n, p]
the inputs (and a column of ones), and a Gaussian prior of precision P and mean m0 on the
coefficients w, write w = U v with U'(Phi'Phi + P)U = I, U'Phi'Phi U = diag(fit) and
U'PU = diag(rest). Given the noise variance s, the v_j are independent,

    v_j ~ N((data_j / s + prior_j) / q_j, 1 / q_j),  q_j = fit_j / s + rest_j,

so that each value of s costs O(p). Mathematically rest = 1 - fit, but it is computed from P: under
a flat prior it is 0, and beside fit / s a rounding error of 1e-16 need not be small. A conjugate
prior has covariance s P^-1 instead, which gives v_j ~ N(data_j + prior_j, s). Bishop (2006),
section 3.3; Gelman et al. (2013), section 14.2. The decomposition is that of [Phi; P^1/2], never of
Phi'Phi, so that no digits are lost to squaring.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError, counted
from ...numerics.cholesky import LOG_2PI

NODES = 4001  # of the trapezoid rule in log s; it converges exponentially for a smooth density
DEPTH = 45.0  # nats below the peak at which the density is negligible
REACH = 30.0  # half-width of the first grid in log s, beyond the values that the residuals suggest
FARTHEST = 600.0  # largest |log s| of a grid; a posterior that reaches it is improper
RANK = 1e-11  # singular values below this share of the largest one count as zero


@dataclass(frozen=True)
class Decomposition:
    """The quantities of the module's notation, and what the evidence needs besides.

    Attributes:
        basis: U [p, p]. Directions about which the rows hold no information, the null space of Phi,
            have fit 0 and keep their prior.
        fit: [p], the diagonal of U'Phi'Phi U.
        rest: [p], the diagonal of U'PU.
        data: [p], U'Phi'y.
        prior: [p], U'P m0.
        seen: [p], the coordinates of y along the columns of Phi U.
        n: The number of rows, or the sum of their weights.
        outside: The sum of squares of y outside the column space.
        total: The sum of squares of y.
        prior_square: The number m0'P m0.
        log_prior: The log normaliser of the prior, over its proper coordinates.
        proper: The number of coefficients with a proper prior.
    """

    basis: Tensor
    fit: Tensor
    rest: Tensor
    data: Tensor
    prior: Tensor
    seen: Tensor
    n: float
    outside: float
    total: float
    prior_square: float
    log_prior: float
    proper: int

    def coefficients(self, s: Tensor, conjugate: bool) -> tuple[Tensor, Tensor]:
        """Return mean and variance of v, [k, p] each, given noise variances s [k]."""
        return moments(self.fit, self.rest, self.data, self.prior, s, conjugate)

    def squares(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of squared residuals and (w - m0)'P(w - m0), [k] each, at v [k, p]."""
        residual = self.outside + (self.seen - self.fit.sqrt() * v).square().sum(-1)
        penalty = (self.rest * v.square() - 2 * v * self.prior).sum(-1) + self.prior_square
        return residual, penalty.clamp_min(0.0)

    @property
    def half_log_det(self) -> float:
        """The value log |det U| = -log|Phi'Phi + P| / 2."""
        if not len(self.fit):
            return 0.0
        return float(torch.linalg.slogdet(self.basis).logabsdet)

    def log_marginal(self, s: Tensor, conjugate: bool = False) -> Tensor:
        """Return log p(y given s), [k], with the coefficients integrated out."""
        v, variance = self.coefficients(s, conjugate)
        residual, penalty = self.squares(v)
        prior = self.log_prior
        if conjugate:
            prior = prior - 0.5 * self.proper * s.log()
            penalty = penalty / s
        fitted = 0.5 * len(self.fit) * LOG_2PI + self.half_log_det + 0.5 * variance.log().sum(-1)
        square = residual / s + penalty
        return -0.5 * self.n * (LOG_2PI + s.log()) + prior + fitted - 0.5 * square


def moments(
    fit: Tensor, rest: Tensor, data: Tensor, prior: Tensor, s: Tensor, conjugate: bool
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of v, [k, p] each, given noise variances s [k].

    Args:
        fit: [p], as in ``Decomposition``.
        rest: [p].
        data: [p].
        prior: [p].
        s: [k], noise variances.
        conjugate: Whether the prior covariance of the coefficients is proportional to s.
    """
    s = s[:, None]
    if conjugate:
        return (data + prior).expand(len(s), -1), s.expand(-1, len(fit))
    q = fit / s + rest
    return (data / s + prior) / q, 1 / q


def decompose(
    Phi: Tensor, y: Tensor, precision: Tensor, mean: Tensor, names: list[str]
) -> Decomposition:
    """Diagonalise Phi'Phi and the prior precision simultaneously.

    Args:
        Phi: [n, p], the inputs.
        y: [n], the targets.
        precision: [p], the diagonal of the prior precision, 0 for a flat prior.
        mean: [p], the prior mean, 0 for a flat prior.
        names: The names of the p columns, for the message of an error.

    Raises:
        DataError: If data and prior together leave a direction of the coefficients undetermined;
            the message names the columns in it.
    """
    n, p = Phi.shape
    size = Phi.square().sum(0).add(precision).sqrt()
    size = torch.where(size > 0, size, torch.ones_like(size))
    stacked = torch.cat([Phi, torch.diag(precision.sqrt())]) / size
    Q, R = torch.linalg.qr(stacked)
    _, values, right = torch.linalg.svd(R)
    if p and float(values.min()) <= RANK * float(values.max()):
        raise _undetermined(n, right[-1].abs(), names)
    # with fewer rows than coefficients the full V is needed: its last columns span the null space
    W, S, Vh = torch.linalg.svd(Q[:n], full_matrices=p > n)
    basis = torch.linalg.solve_triangular(R, Vh.mT, upper=True) / size[:, None]
    S = torch.nn.functional.pad(S.clamp(0.0, 1.0), (0, p - len(S)))
    projected = torch.nn.functional.pad(W.mT @ y, (0, p - W.shape[1]))
    seen = torch.where(S > 0, projected, torch.zeros_like(S))
    rest = (Q[n:] @ Vh.mT).square().sum(0)
    rounding = (p * torch.finfo(rest.dtype).eps) ** 2  # all that remains of a flat direction
    proper = precision > 0
    return Decomposition(
        basis=basis,
        fit=S.square(),
        rest=torch.where(rest > rounding, rest, torch.zeros_like(rest)),
        data=S * seen,
        prior=basis.mT @ (precision * mean),
        seen=seen,
        n=n,
        outside=float((y - W @ seen[: W.shape[1]]).square().sum()),
        total=float(y.square().sum()),
        prior_square=float((precision * mean.square()).sum()),
        log_prior=0.5 * float((precision[proper].log() - LOG_2PI).sum()),
        proper=int(proper.sum()),
    )


def _undetermined(n: int, direction: Tensor, names: list[str]) -> DataError:
    """Return the error for coefficients that are not determined along ``direction`` [p]."""
    p = len(direction)
    if p > n:
        got = f"{counted(n, 'row')} and {counted(p, 'coefficient')}"
    else:
        involved = torch.nonzero(direction > 0.1 * direction.max()).flatten().tolist()
        columns = ", ".join([names[j] for j in involved][:6])
        got = f"columns that are combinations of one another: {columns}"
    return DataError(
        "inputs that determine every coefficient, as the prior is flat",
        got,
        "drop columns, or give the weights a prior such as Normal(0, 1)",
    )


def conjugate_posterior(d: Decomposition, shape: float, rate: float) -> tuple[float, float, float]:
    """Return the inverse-gamma posterior of the noise variance under a conjugate prior.

    A flat prior on the noise has shape -1 and rate 0; its evidence is the integral against that
    density.

    Args:
        d: The decomposition.
        shape: The shape of the inverse-gamma prior.
        rate: Its rate.

    Returns:
        Shape and rate of the posterior, and the log evidence.

    Raises:
        DataError: If the posterior is improper.
    """
    v, _ = d.coefficients(torch.ones(1, dtype=d.fit.dtype), conjugate=True)
    residual, penalty = d.squares(v)
    flat = len(d.fit) - d.proper
    new_shape = shape + 0.5 * (d.n - flat)
    new_rate = rate + 0.5 * float(residual + penalty)
    if new_shape <= 0 or new_rate <= 0:
        raise DataError(
            "more rows than coefficients, as the priors are flat",
            f"{counted(round(d.n), 'row')} and {counted(len(d.fit), 'coefficient')}",
            "use proper priors",
        )
    normaliser = 0.0
    if rate > 0:
        normaliser = shape * math.log(rate) - math.lgamma(shape)
    integral = math.lgamma(new_shape) - new_shape * math.log(new_rate)
    constant = -0.5 * d.n * LOG_2PI + d.log_prior + 0.5 * len(d.fit) * LOG_2PI + d.half_log_det
    return new_shape, new_rate, normaliser + integral + constant


def noise_posterior(
    d: Decomposition, log_prior: Callable[[Tensor], Tensor], like: Tensor, conjugate: bool = False
) -> tuple[Tensor, Tensor, float]:
    """Compute the posterior of the noise variance s on a grid in log s, for any prior on s.

    Args:
        d: The decomposition.
        log_prior: Maps noise variances s [k] to log prior densities [k].
        like: A tensor whose dtype and device the results have.
        conjugate: Whether the prior covariance of the coefficients is proportional to s.

    Returns:
        The grid of log s, the posterior cdf on it, and the log evidence.

    Raises:
        DataError: If the posterior is improper.
    """

    def density(t: Tensor) -> Tensor:  # of t = log s
        s = t.exp()
        return torch.nan_to_num(d.log_marginal(s, conjugate) + log_prior(s) + t, nan=-math.inf)

    low, high = _first_grid(d, density, like)
    for _ in range(4):  # narrows the grid to the range with non-negligible density
        grid = torch.linspace(float(low), float(high), NODES, dtype=like.dtype, device=like.device)
        log_p = density(grid)
        counts = torch.nonzero(log_p > log_p.max() - DEPTH).flatten()
        first, last = max(int(counts[0]) - 1, 0), min(int(counts[-1]) + 1, NODES - 1)
        low, high = grid[first], grid[last]
    grid = torch.linspace(float(low), float(high), NODES, dtype=like.dtype, device=like.device)
    log_p = density(grid)
    width = float(grid[1] - grid[0])
    mass = torch.exp(log_p - log_p.max())
    steps = 0.5 * (mass[1:] + mass[:-1])
    cdf = torch.cat([steps.new_zeros(1), steps.cumsum(0)])
    evidence = float(log_p.max()) + math.log(float(cdf[-1]) * width)
    return grid, cdf / cdf[-1], evidence


def _first_grid(
    d: Decomposition, density: Callable[[Tensor], Tensor], like: Tensor
) -> tuple[float, float]:
    """Return the ends of a range of log s outside which the density is negligible.

    The range starts around the noise variances that the data allow, and is widened as needed.

    Raises:
        DataError: If the density does not vanish at the ends, so that there is no posterior.
    """
    per_row = 1 / max(d.n, 1)
    most = math.log(max(d.total * per_row, 1e-8))
    # the residual is 0 with as many coefficients as rows
    least = math.log(max(d.outside * per_row, 1e-8))
    low, high = min(least, most) - REACH, max(least, most) + REACH
    while True:
        grid = torch.linspace(low, high, NODES, dtype=like.dtype, device=like.device)
        log_p = density(grid)
        counts = log_p > log_p.max() - DEPTH
        if not bool(counts[0] | counts[-1]):
            return low, high
        if max(-low, high) > FARTHEST:
            break
        low, high = low - REACH * float(counts[0]), high + REACH * float(counts[-1])
    if bool(counts[-1]) or not bool(torch.isfinite(log_p).any()):
        raise DataError(
            "priors and rows that determine the noise",
            f"{counted(round(d.n), 'row')}, {counted(len(d.fit), 'coefficient')}, and an improper "
            "posterior of the noise",
            "give the noise a proper prior such as LogNormal(-1, 1.5), or more rows",
        )
    return low, high


def invert(grid: Tensor, cdf: Tensor, u: Tensor) -> Tensor:
    """Return the grid point at which the cdf reaches u [k], by linear interpolation."""
    right = torch.searchsorted(cdf, u).clamp(1, len(grid) - 1)
    left = right - 1
    share = (u - cdf[left]) / (cdf[right] - cdf[left]).clamp_min(torch.finfo(cdf.dtype).tiny)
    return grid[left] + share.clamp(0, 1) * (grid[right] - grid[left])


def inverse_gamma_quantiles(shape: float, rate: float, u: Tensor) -> Tensor:
    """Return the quantiles of InverseGamma(shape, rate) at u.

    torch has no inverse of the incomplete gamma function.
    """
    from scipy import special

    gamma: Any = special.gammaincinv(shape, 1 - u.double().cpu().numpy())
    return rate / torch.as_tensor(gamma, dtype=u.dtype, device=u.device)
