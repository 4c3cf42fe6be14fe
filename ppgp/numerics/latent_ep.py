"""Expectation propagation for a latent Gaussian vector f, given rows that depend on one f_i each.

f = mean + h, h ~ N(0, K). A Gaussian function of f_i with precision tau_i and shift nu_i, a site,
stands for row i; the sites are such that the marginals of f have the moments that the row itself
gives with the other sites. Minka (2001); Rasmussen & Williams (2006), section 3.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..errors import NumericalError
from .derivatives import derivatives_of_sum
from .latent_laplace import (
    VAGUE,
    DensePrior,
    LatentGaussian,
    downdate,
    downdate_by_root,
    identity_plus,
    root_of,
)
from .latent_mode import RowDensity, mode_of

__all__ = ["TiltedRows", "ep_log_evidence", "expand_by_ep"]

SWEEPS = 500
CONVERGED = 1e-8  # largest difference of moments, in standard deviations and relative variances
CONVERGED_SINGLE = 1e-4
LEAST_DAMPING = 0.1
ROUNDING = 1e-4  # differences below it that no longer fall are those of rounding
PATIENCE = 15  # sweeps in which they do not


@runtime_checkable
class TiltedRows(RowDensity, Protocol):
    """The densities of n rows that are log concave in f_i, and their averages over Gaussian f_i."""

    def tilted(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log E p(y_i | f_i) over f_i ~ N(mean_i, variance_i), and two derivatives.

        Returns:
            The logs, their derivatives by the means, and minus the second derivatives, [n] each.
        """
        ...


@dataclass(frozen=True)
class _Sites:
    """Sites, and the approximation of f that they give.

    Attributes:
        tau: Their precisions [n].
        nu: Their shifts [n], precision times mean.
        root: L [n, n] of I + s K s, s the square root of tau.
        R: K - K R K is the covariance of f, [n, n].
        variance: The diagonal of that covariance, [n].
        weights: The weights a [n], where K a is the mean of h.
        h: The mean of h, [n].
    """

    tau: Tensor
    nu: Tensor
    root: Tensor
    R: Tensor
    variance: Tensor
    weights: Tensor
    h: Tensor

    @classmethod
    def at(cls, K: Tensor, tau: Tensor, nu: Tensor) -> _Sites:
        s = tau.sqrt()
        L = root_of(identity_plus(K, s))
        R, variance = downdate_by_root(K, tau, L)
        # s h = B^-1 s K nu; K times the weights, which nearly cancel, would lose digits
        of_s = torch.cholesky_solve((s * (K @ nu))[:, None], L)[:, 0]
        weights = nu - s * of_s
        vague = ~(tau * K.diagonal() > VAGUE)
        h = torch.where(vague, K @ weights, of_s / torch.where(vague, torch.ones_like(s), s))
        return cls(tau, nu, L, R, variance, weights, h)

    def cavities(self) -> tuple[Tensor, Tensor]:
        """Return the mean of each h_i and its variance without its own site."""
        return _cavities(self.variance, self.h, self.tau, self.nu)


def expand_by_ep(K: Tensor, mean: Tensor, rows: TiltedRows) -> LatentGaussian:
    """Return the approximation of f by expectation propagation, for predictions.

    Args:
        K: [n, n], the covariance of f.
        mean: [n], its mean.
        rows: The averages of the rows.

    Raises:
        NumericalError: If the sites do not converge.
    """
    sites = _converged(K, mean, rows)
    if sites is None:
        do = "use latent='laplace', or check the hyperparameters"
        raise NumericalError("sites of EP that converge", f"none after {SWEEPS} sweeps", do)
    return LatentGaussian(sites.weights, sites.tau, sites.root)


def ep_log_evidence(K: Tensor, mean: Tensor, rows: TiltedRows) -> Tensor:
    """Return the approximate log density of all rows, equation 3.65.

    It is differentiable twice in K and the mean. It is NaN where the sites do not converge.

    Args:
        K: [n, n], the covariance of f.
        mean: [n], its mean.
        rows: The averages of the rows.
    """
    value: Any = _LogEvidence.apply(rows, K, mean)
    return value


def _cavities(variance: Tensor, h: Tensor, tau: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    cavity = variance / (1 - tau * variance)
    return cavity * (h / variance - nu), cavity


def _updated(
    rows: TiltedRows, mean: Tensor, variance: Tensor, h: Tensor, tau: Tensor, nu: Tensor
) -> tuple[Tensor, Tensor]:
    """Return tau and nu that match the moments under the given marginals of h."""
    center, cavity = _cavities(variance, h, tau, nu)
    _, slope, curvature = rows.tilted(mean + center, cavity)
    left = 1 - cavity * curvature
    return curvature / left, (slope + center * curvature) / left


def _converged(K: Tensor, mean: Tensor, rows: TiltedRows) -> _Sites | None:
    """Return the sites where all moments match; None if the sweeps do not end there.

    They start at those of Laplace's approximation. All sites move at once. A sweep after which the
    moments match less well is damped more. Where the prior is very wide, rounding keeps them apart.
    """
    tau, nu = _start(K, mean, rows)
    limit = CONVERGED if mean.dtype == torch.float64 else CONVERGED_SINGLE
    damping, before = 1.0, math.inf
    best, least, age = None, ROUNDING, 0
    for sweep in range(SWEEPS):
        sites = _Sites.at(K, tau, nu)
        to_tau, to_nu = _updated(rows, mean, sites.variance, sites.h, tau, nu)
        # moments change by about this much when the sites do
        apart = sites.variance * (to_tau - tau).abs()
        moved = sites.variance.sqrt() * (to_nu - nu - sites.h * (to_tau - tau)).abs()
        error = float(torch.maximum(apart, moved).max())
        if error < limit and sweep:  # sites of 0 have no gradient, however narrow f is
            return sites
        if not math.isfinite(error):
            return best
        age += 1
        if error < least:
            best, least, age = sites, error, 0
        if best is not None and age > PATIENCE:
            return best
        if error > before:
            damping = max(LEAST_DAMPING, 0.7 * damping)
        before = error
        tau, nu = tau + damping * (to_tau - tau), nu + damping * (to_nu - nu)
    return best


def _start(K: Tensor, mean: Tensor, rows: TiltedRows) -> tuple[Tensor, Tensor]:
    """Return tau and nu of Laplace's approximation, or 0 where it has no mode."""
    a, h = mode_of(DensePrior(K), mean, rows)
    tau = -rows.slopes(mean + h, ())[1]
    nu = a + tau * h
    if bool((torch.isfinite(nu) & (tau >= 0)).all()):
        return tau, nu
    return torch.zeros_like(mean), torch.zeros_like(mean)


class _LogEvidence(torch.autograd.Function):
    """log Z of EP, with its gradient in K, (a a' - R) / 2, and in the mean, a."""

    @staticmethod
    def forward(ctx: Any, rows: Any, K: Any, mean: Any) -> Any:
        sites = _converged(K, mean, rows)
        ctx.rows, ctx.sites = rows, sites
        if sites is None:
            ctx.save_for_backward(K, mean)
            return torch.full_like(mean.sum(), math.nan)
        ctx.save_for_backward(K, mean, sites.tau, sites.nu)
        center, cavity = sites.cavities()
        tau, nu, T = sites.tau, sites.nu, 1 / cavity
        logs, _, _ = rows.tilted(mean + center, cavity)
        # equations 3.73 and 3.74
        value = logs.sum() + 0.5 * torch.log1p(tau * cavity).sum()
        value = value - sites.root.diagonal().log().sum()
        value = value + 0.5 * (nu @ sites.h - (nu.square() / (T + tau)).sum())
        return value + 0.5 * (center * T / (T + tau) * (tau * center - 2 * nu)).sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad = grad_outputs[0]
        if ctx.sites is None:
            return None, *(torch.full_like(x, math.nan) for x in ctx.saved_tensors)
        if not torch.is_grad_enabled():
            R, a = ctx.sites.R, ctx.sites.weights
            return None, grad * torch.addr(R, a, a, beta=-0.5, alpha=0.5), grad * a
        K, mean, tau, nu = ctx.saved_tensors
        tau, nu = _moving(ctx.rows, K, mean, tau.detach(), nu.detach())
        _, R, _ = downdate(K, tau)
        a = nu - R @ (K @ nu)
        return None, grad * 0.5 * (torch.outer(a, a) - R), grad * a


def _moving(
    rows: TiltedRows, K: Tensor, mean: Tensor, tau: Tensor, nu: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sites where they have converged, differentiable as the fixed point moves.

    With x the sites and x = u(x, K, mean), the derivative of x is (I - du/dx)^-1 that of u.
    """
    _, R, variance = downdate(K, tau)
    h = K @ (nu - R @ (K @ nu))
    new = torch.cat(_updated(rows, mean, variance, h, tau, nu))
    old = torch.cat([tau, nu])
    with torch.no_grad():
        inputs = (variance.detach(), h.detach(), tau, nu)
        covariance = K - K @ R @ K

        def one(which: int) -> tuple[Tensor, ...]:
            def total(*values: Tensor) -> Tensor:
                return _updated(rows, mean.detach(), *values)[which]

            return derivatives_of_sum(total, inputs)

        blocks = []
        for by_variance, by_h, by_tau, by_nu in map(one, (0, 1)):
            of_tau = -by_variance[:, None] * covariance.square()
            of_tau = of_tau - by_h[:, None] * covariance * inputs[1] + torch.diag(by_tau)
            blocks.append(torch.cat([of_tau, by_h[:, None] * covariance + torch.diag(by_nu)], 1))
        left = torch.eye(len(old)).to(K) - torch.cat(blocks)
    moved = old + torch.linalg.solve(left, new - old)
    return moved[: len(tau)], moved[len(tau) :]
