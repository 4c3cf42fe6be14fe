"""The algebra of a whitened sparse variational GP: its marginals, and a natural-gradient step.

u = L v, v ~ N(0, I), q(v) = N(loc, W W'), A = L^-1 Kmn, with m inducing inputs, b rows, and [*k]
latent functions that share A: loc [*k, m], W [*k, m, m] lower triangular.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...numerics.cholesky import factor_or_nan
from ...numerics.triangles import (
    between_inverses,
    lower_half,
    lower_times,
    solved,
    solved_transposed,
    transposed_times,
)
from ...runtime.team import Team

__all__ = ["Moments", "divergence", "marginals"]


class _Marginals(torch.autograd.Function):
    """Mean A'loc and |W'A_i|^2 - |A_i|^2, with an explicit gradient.

    The gradient in L is never formed: with A = L^-1 Kmn and S the gradient in A, L' times it is
    -S A', of which the derivative of a Cholesky factor needs the lower triangle. Murray (2016),
    equation 10. The gradient in W is that in its lower triangle.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(Kmm: Tensor, Kmn: Tensor, loc: Tensor, W: Tensor) -> Any:
        L, failed = torch.linalg.cholesky_ex(Kmm)
        # NaN on the diagonal makes all that follows NaN, without a pass over the whole matrix
        L.diagonal(dim1=-2, dim2=-1).mul_(torch.where(failed == 0, 1.0, math.nan)[..., None].to(L))
        A = solved(L, Kmn)
        P = transposed_times(W, A)
        return loc @ A, P.square().sum(-2) - A.square().sum(-2), L, A, P

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, L, A, P = output
        ctx.mark_non_differentiable(L, A, P)
        ctx.save_for_backward(*inputs, L, A, P)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        g, h = grad_outputs[:2]
        Kmm, Kmn, loc, W, L, A, P = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives need the graph of these
            L = factor_or_nan(Kmm)
            A = solved(L, Kmn)
            P = transposed_times(W, A)
        gradient_P = P * (2 * h).unsqueeze(-2)
        each = lower_times(W, gradient_P)
        if loc.ndim == 1:
            gradient_A = torch.addcmul(torch.addr(each, loc, g), A, -2 * h)
        else:
            gradient_A = torch.addcmul(each.sum(0) + loc.mT @ g, A, -2 * h.sum(0))
        gradient_Kmn = solved_transposed(L, gradient_A)
        gradient_Kmm = -0.5 * between_inverses(L, lower_half(gradient_A, A))
        return gradient_Kmm, gradient_Kmn, g @ A.mT, lower_half(A, gradient_P)


def marginals(
    Kmm: Tensor, Kmn: Tensor, diagonal: Tensor, loc: Tensor, W: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of f under q, [*k, b] each, without the prior mean.

    Hensman, Matthews & Ghahramani (2015), equation 17.

    Args:
        Kmm: [m, m], jitter included.
        Kmn: [m, b].
        diagonal: [b], the diagonal of Knn.
        loc: [m] or [k, m], the mean of q(v).
        W: A lower triangular root of q's covariance, or the standard deviations, of the shape of
            ``loc``, where the covariance is diagonal.
    """
    if W.ndim == loc.ndim:
        A = solved(factor_or_nan(Kmm), Kmn)
        mean, spread = loc @ A, (W.square() - 1) @ A.square()
    else:
        outputs: Any = _Marginals.apply(Kmm, Kmn, loc, W)
        mean, spread = outputs[:2]
    return mean, (diagonal + spread).clamp_min(0.0)


def divergence(loc: Tensor, W: Tensor) -> Tensor:
    """Return KL(N(loc, W W') from N(0, I)), summed over the latent functions.

    loc and W are as in ``marginals``.
    """
    diagonal = W if W.ndim == loc.ndim else W.diagonal(dim1=-2, dim2=-1)
    return 0.5 * (loc.square().sum() + W.square().sum() - loc.numel()) - diagonal.log().sum()


class Moments:
    """The sums over rows that a natural-gradient step needs, added up chunk by chunk.

    They are A diag(-2 h) A' and A (g - 2 h mean), where g and h are the derivatives of the expected
    log likelihood in the mean and the variance of f. Khan & Lin (2017), equation 11.

    With t1 = S^-1 loc and the precision S^-1 as natural parameters, a step of rate r is a convex
    combination: the precision becomes (1 - r) S^-1 + r (I + A diag(-2 h) A'), and t1 becomes
    (1 - r) t1 + r A (g - 2 h mean).

    Args:
        loc: [*k, m], a tensor whose shape, dtype and device the sums have.
    """

    def __init__(self, loc: Tensor) -> None:
        self.precision = torch.zeros(*loc.shape, loc.shape[-1]).to(loc)
        self.shift = torch.zeros_like(loc)

    def add(self, A: Tensor, mean: Tensor, g: Tensor, h: Tensor) -> None:
        """Add a chunk of rows.

        Args:
            A: [m, b].
            mean: [*k, b], the mean of f.
            g: [*k, b], the derivative in the mean.
            h: [*k, b], the derivative in the variance.
        """
        self.precision += (A * (-2 * h).unsqueeze(-2)) @ A.mT
        self.shift += (g - 2 * h * mean) @ A.mT

    def over_ranks(self, team: Team, weight: float) -> float:
        """Replace the sums by the means over the ranks of a team, times each rank's weight.

        Args:
            team: The team.
            weight: The factor of this rank's sums over rows.

        Returns:
            The weight that the sums then have.
        """
        if team.alone:
            return weight
        m = self.shift.shape[-1]
        i, j = torch.tril_indices(m, m, device=self.shift.device)
        lower, shift = team.means(weight * self.precision[..., i, j], weight * self.shift)
        self.precision[..., i, j] = lower
        self.precision[..., j, i] = lower
        self.shift = shift
        return 1.0

    def step(self, loc: Tensor, W: Tensor, weight: float, rate: float) -> tuple[Tensor, Tensor]:
        """Return loc and W after a step.

        The rate is halved until the precision is positive definite, which likelihoods that are not
        log-concave do not guarantee.

        Args:
            loc: [*k, m].
            W: [*k, m, m].
            weight: The factor of the sums over rows, n / b.
            rate: The rate of the step, in (0, 1].
        """
        eye = torch.eye(loc.shape[-1]).to(loc)
        inverse = torch.linalg.solve_triangular(W, eye.expand_as(W), upper=False)
        old = inverse.mT @ inverse
        first = (old @ loc.unsqueeze(-1)).squeeze(-1)
        for _ in range(20):
            precision = (1 - rate) * old + rate * (eye + weight * self.precision)
            new, failed = _precision_root(precision)
            if not bool(failed.any()) and bool(torch.isfinite(new).all()):
                t1 = ((1 - rate) * first + rate * weight * self.shift).unsqueeze(-1)
                return (new @ (new.mT @ t1)).squeeze(-1), new
            rate *= 0.5
        return loc, W


def _precision_root(P: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower triangular W with W W' = P^-1, and whether there is none, [*k].

    With P = U U' and U upper triangular, W = U^-T.
    """
    flipped, failed = torch.linalg.cholesky_ex(P.flip(-2, -1))
    eye = torch.eye(P.shape[-1]).to(P)
    inverse = torch.linalg.solve_triangular(flipped.flip(-2, -1), eye.expand_as(P), upper=True)
    return inverse.mT, failed != 0
