"""The algebra of a whitened sparse variational GP.

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

__all__ = ["divergence", "marginals"]


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
