"""Laplace's approximation of a latent Gaussian vector f, given rows that depend on one f_i each.

f = mean + h, h ~ N(0, K), and the log density of the rows is a sum over i of a function of f_i.
Rasmussen & Williams (2006), chapter 3, whose W is minus the second derivative of that function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..errors import NumericalError

__all__ = ["LatentGaussian", "RowDensity", "expand_at_mode", "laplace_log_evidence"]

Parameters = tuple[Tensor, ...]
STEPS = 200
VAGUE = 1e-6  # the precision of a row, in prior variances of f, that counts as small
HALVINGS = 30
ROUNDING = 1e-10  # how much a step may descend, relative to what it maximises
NEAR = 1.0  # gain of a step, in nats, below which the observed curvature is tried
#: Gain of a step, in nats, below which the search ends. Newton's steps converge quadratically, so
#: that the next one would gain its square; those with expected curvature only linearly.
SMALL = {True: 1e-10, False: 1e-20}
SMALL_SINGLE = 1e-7


@runtime_checkable
class RowDensity(Protocol):
    """The log densities of n rows as functions of f [n], and of parameters."""

    def log_prob(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return the log density of each row, [n]."""
        ...

    def slopes(self, f: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return the first and the second derivative of each by its f_i, [n]."""
        ...

    def information(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return the Fisher information of each row about its f_i, [n]."""
        ...


@dataclass(frozen=True)
class LatentGaussian:
    """A Gaussian approximation of f given the rows, as predictions need it.

    Attributes:
        weights: a [n], with mean + K a the mean of f.
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


def expand_at_mode(
    K: Tensor, mean: Tensor, rows: RowDensity, parameters: Parameters = ()
) -> LatentGaussian:
    """Return Laplace's approximation of f, for predictions by algorithm 3.2.

    Args:
        K: [n, n], the covariance of f.
        mean: [n], its mean.
        rows: the log densities of the rows.
        parameters: those of ``rows``.

    Raises:
        NumericalError: if there is no finite mode.
    """
    a, h = mode_of(K, mean, rows, parameters)
    if not bool(torch.isfinite(h).all()):
        do = "check the hyperparameters and the targets"
        raise NumericalError("a mode of f given the rows", "steps that are not finite", do)
    _, second = rows.slopes(mean + h, parameters)
    W = -second
    if bool((W < 0).any()):
        R = downdate(K, W)[1]
        return LatentGaussian(a, W, torch.zeros_like(K), R)
    return LatentGaussian(a, W, root_of(identity_plus(K, W.sqrt())))


def laplace_log_evidence(
    K: Tensor, mean: Tensor, rows: RowDensity, parameters: Parameters = ()
) -> Tensor:
    """Return Laplace's approximation of the log density of all rows, equation 3.32.

    It is differentiable twice in K, the mean and the parameters: the gradient is that of algorithm
    5.1, which counts how the mode moves. It is NaN where K is not finite, or where the second
    derivatives at the end of the search are not those of a mode.

    Args:
        K: [n, n], the covariance of f.
        mean: [n], its mean.
        rows: the log densities of the rows.
        parameters: those of ``rows``.
    """
    value: Any = _LogEvidence.apply(rows, K, mean, *parameters)
    return value


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


def mode_of(
    K: Tensor, mean: Tensor, rows: RowDensity, parameters: Parameters = ()
) -> tuple[Tensor, Tensor]:
    """Maximise log p(rows given f) - h' K^-1 h / 2 over f = mean + h, by algorithm 3.1.

    Where the log density of a row is not concave, its expected curvature takes the place of the
    observed one, until steps are small. A step that does not ascend is halved.

    Returns:
        a [n] and h [n], where h = K a; NaN if a step is not finite.
    """
    a = h = torch.zeros_like(mean)
    value, gain = rows.log_prob(mean, parameters).sum(), math.inf
    for _ in range(STEPS):
        first, second = rows.slopes(mean + h, parameters)
        newton = bool((second <= 0).all())
        if not newton and gain < NEAR:
            found = _observed_step(K, mean, rows, parameters, (a, h, value), (first, second))
            if found is not None:
                a, h, value, gain = found
                if gain <= _small(mean.dtype, True):
                    break
                continue
        W = -second
        if not newton:
            W = torch.where(second <= 0, W, rows.information(mean + h, parameters))
        s = W.sqrt()
        L = root_of(identity_plus(K, s))
        b = W * h + first
        step = b - s * torch.cholesky_solve((s * (K @ b))[:, None], L)[:, 0] - a
        of_h = K @ step
        gain = float((first - a) @ of_h)
        if not math.isfinite(gain):
            return torch.full_like(a, math.nan), torch.full_like(h, math.nan)

        at = partial(_along, (a, h), (step, of_h), mean, rows, parameters)
        a, h, value = _ascended(at, value)
        if gain <= _small(mean.dtype, newton):
            break
    return a, h


def _small(dtype: torch.dtype, newton: bool) -> float:
    return SMALL[newton] if dtype == torch.float64 else SMALL_SINGLE


def _along(
    here: tuple[Tensor, Tensor],
    step: tuple[Tensor, Tensor],
    mean: Tensor,
    rows: RowDensity,
    parameters: Parameters,
    t: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a, h and what the mode maximises after t times a step in (a, h)."""
    a, h = here[0] + t * step[0], here[1] + t * step[1]
    return a, h, rows.log_prob(mean + h, parameters).sum() - 0.5 * a @ h


def _ascended(at: Callable[[float], Any], value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what ``at`` gives at the first of 1, 1/2, 1/4, ... that does not descend."""
    t, allowed = 1.0, ROUNDING * (1 + value.abs())
    for _ in range(HALVINGS):
        found = at(t)
        if bool(found[2] >= value - allowed):
            return found
        t /= 2
    return at(0.0)


def _observed_step(
    K: Tensor,
    mean: Tensor,
    rows: RowDensity,
    parameters: Parameters,
    here: tuple[Tensor, Tensor, Tensor],
    slopes: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor, float] | None:
    """Return a, h, the value and the gain of a whole Newton step; None if it does not ascend.

    Args:
        K: see ``_mode``.
        mean: see ``_mode``.
        rows: see ``_mode``.
        parameters: see ``_mode``.
        here: a, h and the value before the step.
        slopes: the first and the second derivative there.
    """
    (a, h, value), (first, second) = here, slopes
    toward = _newton(K, h, first, second)
    gain = float((first - a) @ (toward - h))
    if not gain >= 0:
        return None
    step = first - second * (h - toward) - a, toward - h
    found = _along((a, h), step, mean, rows, parameters, 1.0)
    if not bool(found[2] >= value - ROUNDING * (1 + value.abs())):
        return None
    return (*found, gain)


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


class _LogEvidence(torch.autograd.Function):
    """log q(rows) at the mode, with its gradient by implicit differentiation."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        rows, K, mean, *others = arguments
        parameters = tuple(others)
        a, h = mode_of(K, mean, rows, parameters)
        ctx.rows, ctx.root, ctx.found = rows, None, bool(torch.isfinite(h).all())
        ctx.save_for_backward(K, mean, h, *parameters)
        if not ctx.found:
            return h.sum()
        _, second = rows.slopes(mean + h, parameters)
        W, L = -second, None
        if bool((W >= 0).all()):
            L = root_of(identity_plus(K, W.sqrt()))
            half_log_det = L.diagonal().log().sum()
        else:
            half_log_det = downdate(K, W)[0]
        ctx.root = L
        fit = rows.log_prob(mean + h, parameters).sum()
        return fit - 0.5 * a @ h - half_log_det

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad = grad_outputs[0]
        K, mean, h, *others = ctx.saved_tensors
        rows, parameters, L = ctx.rows, tuple(others), ctx.root
        if not ctx.found:
            return None, *(torch.full_like(x, math.nan) for x in (K, mean, *parameters))
        if torch.is_grad_enabled():
            # a step from the mode stays there, and moves as the mode does
            h = h.detach()
            h, L = _newton(K, h, *rows.slopes(mean + h, parameters)), None
        f = mean + h
        first, second = rows.slopes(f, parameters)
        if L is None:
            _, R, variance = downdate(K, -second)
        else:
            R, variance = downdate_by_root(K, -second, L)
        third = torch.func.grad(lambda f: rows.slopes(f, parameters)[1].sum())(f)
        u = 0.5 * variance * third  # the slope of -log|B| / 2 in f
        b = u - R @ (K @ u)
        total = first + b
        of_K = torch.addr(torch.addr(R, first, total, beta=-0.5, alpha=0.5), b, first, alpha=0.5)
        of_parameters: tuple[Tensor, ...] = ()
        if parameters:
            moved = K @ b

            def explicit(parameters: Parameters) -> Tensor:
                slope, curvature = rows.slopes(f, parameters)
                fit = rows.log_prob(f, parameters).sum()
                return fit + 0.5 * variance @ curvature + moved @ slope

            of_parameters = torch.func.grad(explicit)(parameters)
        return None, grad * of_K, grad * total, *(grad * g for g in of_parameters)


def _newton(K: Tensor, h: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return h after a step of Newton's method with the observed curvature, whatever its sign."""
    M = torch.eye(len(h)).to(K) - K * second
    return torch.linalg.solve(M, K @ (first - second * h))
