"""Log densities of y ~ N(F beta, C) without the unknown beta: integrated out, or maximised.

Contrasts are linear combinations A'y with A'F = 0, which do not depend on beta. Householder
reflections that map F to the first p axes give an orthonormal A as the other n - p axes, and A'CA
as p updates of rank 2. This costs O(n^2 p), and nothing is squared.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .gaussian_log_density import gaussian_log_density


def contrasts(
    C: Float[Tensor, "*batch n n"], r: Float[Tensor, "*batch n"], F: Float[Tensor, "n p"]
) -> tuple[Float[Tensor, "*batch k k"], Float[Tensor, "*batch k"], Tensor]:
    """Return covariance and values of the contrasts, for an orthonormal A with A'F = 0.

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
