"""The algebra of a whitened sparse variational GP: u = L v, v ~ N(0, I), q(v) = N(loc, W W'), A = L^-1 Kmn.

m inducing inputs, b rows, and [*k] latent functions that share A: loc [*k, m], W [*k, m, m] lower triangular.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .cholesky import factor_or_nan

__all__ = ["Moments", "divergence", "marginals", "precision_root"]


class _Marginals(torch.autograd.Function):
    """Mean A'loc and |W'A_i|^2 - |A_i|^2, with a gradient that is four products of m x m x b and three triangular solves.

    The slope of L is never formed: with A = L^-1 Kmn and S the slope of A, L' times it is -S A', which is all that the derivative of
    a Cholesky factor asks for. Murray (2016), equation 10.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        Kmm: Tensor, Kmn: Tensor, loc: Tensor, W: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # type: ignore[override]
        L, failed = torch.linalg.cholesky_ex(Kmm)
        # NaN on the diagonal alone, where factor_or_nan would read and write the whole matrix: all that follows is NaN
        L.diagonal(dim1=-2, dim2=-1).mul_(torch.where(failed == 0, 1.0, math.nan)[..., None].to(L))
        A = torch.linalg.solve_triangular(L, Kmn, upper=False)
        P = W.mT @ A
        return loc @ A, P.square().sum(-2) - A.square().sum(-2), L, A, P

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        _, _, L, A, P = output
        ctx.mark_non_differentiable(L, A, P)
        ctx.save_for_backward(*inputs, L, A, P)

    @staticmethod
    def backward(ctx, g, h, _L, _A, _P):  # type: ignore[no-untyped-def]
        Kmm, Kmn, loc, W, L, A, P = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of the gradient sees how they came about
            L = factor_or_nan(Kmm)
            A = torch.linalg.solve_triangular(L, Kmn, upper=False)
            P = W.mT @ A
        slope_P = P * (2 * h).unsqueeze(-2)
        each = W @ slope_P
        if loc.ndim == 1:
            slope_A = torch.addcmul(torch.addr(each, loc, g), A, -2 * h)
        else:
            slope_A = torch.addcmul(each.sum(0) + loc.mT @ g, A, -2 * h.sum(0))
        slope_Kmn = torch.linalg.solve_triangular(L.mT, slope_A, upper=True)
        inner = (slope_A @ A.mT).tril()
        inner = inner - 0.5 * torch.diag_embed(inner.diagonal())
        outer = torch.linalg.solve_triangular(L, inner, upper=False, left=False)
        slope_Kmm = torch.linalg.solve_triangular(L.mT, outer, upper=True)
        return -0.5 * (slope_Kmm + slope_Kmm.mT), slope_Kmn, g @ A.mT, A @ slope_P.mT


def marginals(
    Kmm: Tensor, Kmn: Tensor, diagonal: Tensor, loc: Tensor, W: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance [*k, b] of f under q, less its prior mean. Hensman, Matthews & Ghahramani (2015), equation 17.

    Args:
        Kmm: [m, m], jitter included.
        Kmn: [m, b].
        diagonal: of Knn, [b].
        loc: [m] or [k, m].
        W: a lower triangular root of q's covariance, or the sds where it is diagonal, of the shape of ``loc``.
    """
    if W.ndim == loc.ndim:
        A = torch.linalg.solve_triangular(factor_or_nan(Kmm), Kmn, upper=False)
        mean, spread = loc @ A, (W.square() - 1) @ A.square()
    else:
        mean, spread = _Marginals.apply(Kmm, Kmn, loc, W)[:2]  # type: ignore[index]
    return mean, (diagonal + spread).clamp_min(0.0)


def divergence(loc: Tensor, W: Tensor) -> Tensor:
    """KL(N(loc, W W') from N(0, I)), summed over the latent functions; W as in ``marginals``."""
    diagonal = W if W.ndim == loc.ndim else W.diagonal(dim1=-2, dim2=-1)
    return 0.5 * (loc.square().sum() + W.square().sum() - loc.numel()) - diagonal.log().sum()


def precision_root(P: Tensor) -> tuple[Tensor, Tensor]:
    """Lower triangular W with W W' = P^-1, and whether there is none, [*k]: P = U U' with U upper triangular, W = U^-T."""
    flipped, failed = torch.linalg.cholesky_ex(P.flip(-2, -1))
    eye = torch.eye(P.shape[-1]).to(P)
    inverse = torch.linalg.solve_triangular(flipped.flip(-2, -1), eye.expand_as(P), upper=True)
    return inverse.mT, failed != 0


class Moments:
    """What the natural-gradient step needs of the rows, added up chunk by chunk: A diag(-2 h) A' and A (g - 2 h mean), where g and h
    are the derivatives of the expected log likelihood by the mean and the variance of f. Khan & Lin (2017), equation 11.

    With t1 = S^-1 loc and the precision S^-1 as natural parameters, a step of rate r is a convex combination: precision
    (1 - r) S^-1 + r (I + A diag(-2 h) A'), t1 (1 - r) t1 + r A (g - 2 h mean).
    """

    def __init__(self, loc: Tensor) -> None:
        self.precision = torch.zeros(*loc.shape, loc.shape[-1]).to(loc)
        self.shift = torch.zeros_like(loc)

    def add(self, A: Tensor, mean: Tensor, g: Tensor, h: Tensor) -> None:
        """A [m, b]; mean, g and h [*k, b]."""
        self.precision += (A * (-2 * h).unsqueeze(-2)) @ A.mT
        self.shift += (g - 2 * h * mean) @ A.mT

    def step(self, loc: Tensor, W: Tensor, weight: float, rate: float) -> tuple[Tensor, Tensor]:
        """loc and W after a step; ``weight`` stands before the sums over rows (n / b). Halved until the precision is positive
        definite, which likelihoods that are not log-concave do not promise."""
        eye = torch.eye(loc.shape[-1]).to(loc)
        inverse = torch.linalg.solve_triangular(W, eye.expand_as(W), upper=False)
        old = inverse.mT @ inverse
        first = (old @ loc.unsqueeze(-1)).squeeze(-1)
        for _ in range(20):
            precision = (1 - rate) * old + rate * (eye + weight * self.precision)
            new, failed = precision_root(precision)
            if not bool(failed.any()) and bool(torch.isfinite(new).all()):
                t1 = ((1 - rate) * first + rate * weight * self.shift).unsqueeze(-1)
                return (new @ (new.mT @ t1)).squeeze(-1), new
            rate *= 0.5
        return loc, W
