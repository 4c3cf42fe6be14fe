"""The log density of a Gaussian vector, with an explicit gradient in its covariance.

Also of y ~ N(F beta, C) without the unknown beta, which is integrated out, or maximised.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .cholesky import LOG_2PI, factor_or_nan
from .triangles import inverse_of_product


class _GaussianLogDensity(torch.autograd.Function):
    """log N(r; 0, C) with d/dC = (a a' - C^-1) / 2 and d/dr = -a, where a = C^-1 r.

    It takes one Cholesky factorisation and one inverse computed from it, n^3 flops in all;
    differentiating through the factorisation costs about three times as much. Where second
    derivatives are requested, the backward pass recomputes everything from C, so that they are
    right.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(C: Tensor, r: Tensor) -> Any:
        L, info = torch.linalg.cholesky_ex(C)
        # NaN on the diagonal makes all that follows NaN, without a pass over the whole matrix
        L.diagonal(dim1=-2, dim2=-1).mul_(torch.where(info == 0, 1.0, math.nan)[..., None].to(L))
        w = torch.linalg.solve_triangular(L, r.unsqueeze(-1), upper=False)
        # cholesky_solve would copy L
        a = torch.linalg.solve_triangular(L.mT, w, upper=True).squeeze(-1)
        half_log_det = L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        value = -0.5 * w.square().sum((-2, -1)) - half_log_det - 0.5 * r.shape[-1] * LOG_2PI
        return value, L, a

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        C, r = inputs
        _, L, a = output
        ctx.mark_non_differentiable(L, a)
        ctx.save_for_backward(C, r, L, a)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad = grad_outputs[0]
        C, r, L, a = ctx.saved_tensors
        if torch.is_grad_enabled():
            inverse = torch.cholesky_inverse(factor_or_nan(C))
            a = (inverse @ r.unsqueeze(-1)).squeeze(-1)
        else:
            inverse = inverse_of_product(L)
        if inverse.ndim == 2:  # one pass over the matrix instead of three
            gradient = torch.addr(inverse, a, a, beta=-0.5, alpha=0.5)
        else:
            gradient = 0.5 * (a.unsqueeze(-1) * a.unsqueeze(-2) - inverse)
        return gradient * grad[..., None, None], -a * grad.unsqueeze(-1)


def value_and_slopes(
    K: Float[Tensor, "n n"],
    noise: Float[Tensor, " k"],
    r: Float[Tensor, " n"],
    in_place: bool = True,
) -> tuple[Float[Tensor, ""], Float[Tensor, "n n"], Float[Tensor, " n"]]:
    """Compute log N(r; 0, C) with C = K + diag(noise), and its slope in C.

    Rasmussen & Williams (2006), equations 5.8 and 5.9. One factor, one inverse from it, and one
    pass over the inverse.

    Args:
        K: [n, n], symmetric. Its diagonal is changed meanwhile where ``in_place``.
        noise: [1] or [n].
        r: [n], the residual.
        in_place: Whether the noise is added to K itself. Under vmap it cannot be where K is the
            same for all points.

    Returns:
        The density; its slope (a a' - C^-1) / 2, [n, n] and row-major; and a = C^-1 r, [n]. NaN
        where C is not positive definite.
    """
    # of the transpose, which is the same matrix, LAPACK's order of memory is a plain copy
    if in_place:
        K = K.contiguous()
        diagonal = K.diagonal()
        before = diagonal.clone()
        diagonal.add_(noise)
        L, info = torch.linalg.cholesky_ex(K.mT)
        diagonal.copy_(before)
    else:
        C = torch.diagonal_scatter(K, K.diagonal() + noise)
        L, info = torch.linalg.cholesky_ex(C.mT)
    pivots = L.diagonal()
    pivots.mul_(torch.where(info == 0, r.new_ones(()), math.nan))
    w = torch.linalg.solve_triangular(L, r.unsqueeze(-1), upper=False)
    a = torch.linalg.solve_triangular(L.mT, w, upper=True).squeeze(-1)
    w = w.squeeze(-1)
    value = -0.5 * len(r) * LOG_2PI - torch.addcmul(pivots.log(), w, w, value=0.5).sum()
    # new memory would cost more than the pass itself
    slope = inverse_of_product(L).addr_(a, a, beta=-0.5, alpha=0.5)
    return value, slope, a


def gaussian_log_density(
    C: Float[Tensor, "*batch n n"], r: Float[Tensor, "*batch n"]
) -> Float[Tensor, "*batch"]:
    """Compute log N(r; 0, C) with first and second derivatives.

    Rasmussen & Williams (2006), equations 5.8 and 5.9.

    Args:
        C: [*batch, n, n], the covariance.
        r: [*batch, n], the residual.

    Returns:
        [*batch]; NaN (never an exception) where C is not positive definite.
    """
    outputs: Any = _GaussianLogDensity.apply(C, r)
    return outputs[0]


def contrasts(
    C: Float[Tensor, "*batch n n"], r: Float[Tensor, "*batch n"], F: Float[Tensor, "n p"]
) -> tuple[Float[Tensor, "*batch k k"], Float[Tensor, "*batch k"], Tensor]:
    """Return covariance and values of the contrasts, for an orthonormal A with A'F = 0.

    Contrasts are linear combinations A'y with A'F = 0, which do not depend on the coefficients of
    the trend F. Householder reflections that map F to the first p axes give an orthonormal A as the
    other n - p axes, and A'CA as p updates of rank 2. This costs O(n^2 p), and nothing is squared.

    Args:
        C: [*batch, n, n], the covariance.
        r: [*batch, n], the values.
        F: [n, p], the functions of the trend.

    Returns:
        A'CA [*batch, k, k], A'r [*batch, k] with k = n - p, and log|F'F| / 2.
    """
    half_log_det = torch.zeros((), dtype=F.dtype, device=F.device)
    R, p = F, F.shape[-1]
    for j in range(p):
        norm = R[j:, j].norm()
        axis = torch.zeros_like(R[:, 0])
        axis[j] = 1.0
        # the sign that avoids cancellation
        v = torch.cat([torch.zeros_like(R[:j, j]), R[j:, j]]) + torch.copysign(norm, R[j, j]) * axis
        v = v / v.norm()
        R = R - 2.0 * torch.outer(v, v @ R)
        half_log_det = half_log_det + norm.log()
        w = C @ v
        w = 2.0 * (w - (w @ v)[..., None] * v)
        C = C - v[:, None] * w[..., None, :] - w[..., :, None] * v
        r = r - 2.0 * (r @ v)[..., None] * v
    return C[..., p:, p:], r[..., p:], half_log_det


def restricted_log_density(
    C: Tensor, r: Tensor, F: Float[Tensor, "n p"]
) -> Float[Tensor, "*batch"]:
    """Return the log of the integral of N(r; F beta, C) over all beta.

    It is -((n - p) log 2 pi + log|C| + log|F'C^-1F| + r'Qr) / 2 with
    Q = C^-1 - C^-1 F (F'C^-1F)^-1 F'C^-1: the restricted likelihood (REML), which is the density of
    the contrasts, times |F'F|^-1/2, which depends on no hyperparameter. Patterson & Thompson
    (1971); Harville (1974), equation 3.

    Returns:
        [*batch]; NaN where C is not positive definite, 0 where n = p leaves no contrast.
    """
    C, r, half_log_det = contrasts(C, r, F)
    if r.shape[-1] == 0:
        return r.sum(-1) - half_log_det
    return gaussian_log_density(C, r) - half_log_det


def profile_log_density(C: Tensor, r: Tensor, F: Float[Tensor, "n p"]) -> Float[Tensor, "*batch"]:
    """Return the maximum of log N(r; F beta, C) over beta, with first and second derivatives in C.

    It is -(n log 2 pi + log|C| + r'Qr) / 2, with Q as in ``restricted_log_density``.
    """
    Cc, rc, _ = contrasts(C, r, F)
    all_of_it = gaussian_log_density(C, torch.zeros_like(r))
    if rc.shape[-1] == 0:
        return all_of_it
    return all_of_it + gaussian_log_density(Cc, rc) - gaussian_log_density(Cc, torch.zeros_like(rc))
