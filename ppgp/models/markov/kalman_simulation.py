"""Draws of the states of a linear Gaussian Markov process; see ``kalman``."""

from __future__ import annotations

import torch
from torch import Tensor

from ...numerics.small_matrices import identity, product, times_vector


def root(Q: Tensor) -> Tensor:
    """Return B with B B' = Q, for covariances Q [s, s, *many] that may be singular.

    Each is scaled to a unit diagonal first: the variances of a short step differ by many orders
    of magnitude.
    """
    sd = Q.diagonal(dim1=0, dim2=1).movedim(-1, 0).clamp_min(0.0).sqrt()
    if len(Q) == 1:
        return sd[None]
    by = torch.where(sd > 0, sd, torch.ones_like(sd))
    values, vectors = torch.linalg.eigh((Q / by[:, None] / by).movedim((0, 1), (-2, -1)))
    roots = vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)
    return roots.movedim((-2, -1), (0, 1)) * sd[:, None]


def simulated(F: Tensor, Q: Tensor, P0: Tensor, z0: Tensor, z: Tensor) -> Tensor:
    """Return a draw of the state at each row, [s, *b, steps, lanes].

    Args:
        F: The transitions [s, s, *b, steps, lanes].
        Q: The covariances of what they add.
        P0: The covariance of the state before the first row [s, s, *b].
        z0: Standard normal numbers [s, *b].
        z: Standard normal numbers [s, *b, steps, lanes].
    """
    moves = times_vector(root(Q), z).unbind(-2)
    x, A = torch.zeros_like(moves[0]), identity(F[..., 0, :])
    xs, As = [], []
    for F_t, e in zip(F.unbind(-2), moves, strict=True):
        x, A = times_vector(F_t, x) + e, product(F_t, A)
        xs.append(x)
        As.append(A)
    start, starts = times_vector(root(P0), z0), []
    for lane in range(F.shape[-1]):
        starts.append(start)
        start = x[..., lane] + times_vector(A[..., lane], start)
    first = torch.stack(starts, -1)
    return torch.stack(xs, -2) + times_vector(torch.stack(As, -2), first.unsqueeze(-2))
