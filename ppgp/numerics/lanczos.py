"""Lanczos' method for a symmetric matrix M that is known by its products with vectors.

It gives functions of M times a vector, and estimates of log|M| from fixed probes z, the mean of
z'log(M) z: Ubaru, Chen & Saad (2017); Gardner, Pleiss, Bindel, Weinberger & Wilson (2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Krylov", "LogDet", "beside_one_another", "fixed_signs", "krylov", "log_det"]

FIRST_STEPS = 32  # for which there is room from the start
NEGLIGIBLE = 1e-13  # relative size of a part of a slope that is left out


class Krylov(NamedTuple):
    """The bases of Krylov spaces of M.

    Attributes:
        V: [k, steps, m], one basis for each of k vectors.
        kept: [steps, ...], what the product keeps of each step.
        T: [k, steps, steps], M in the bases.
        left: [k], the share of each vector that a solution in its basis leaves.
    """

    V: Tensor
    kept: Tensor
    T: Tensor
    left: Tensor

    def applied(self, function: Callable[[Tensor], Tensor], sizes: Tensor) -> Tensor:
        """Return f(M) b [m, k] for the vectors b of norms ``sizes`` [k] that span the bases."""
        values, S = torch.linalg.eigh(self.T)
        weights = (S @ (function(values) * S[:, 0])[..., None]) * sizes[:, None, None]
        return (self.V.mT @ weights)[..., 0].T


def krylov(
    product: Callable[[Tensor], tuple[Tensor, Tensor]], b: Tensor, *, left: float, most: int
) -> Krylov:
    """Return the bases of M from each column of b, with full reorthogonalisation.

    Args:
        product: The function v [m, k] -> M v, and what to keep of the step.
        b: [m, k], none of its columns 0.
        left: The share of each column that a solution in its basis may leave.
        most: The largest number of steps.
    """
    kept, diagonal, beside = [], [], []
    newest = (b / b.norm(dim=0)).T
    V = b.new_empty(b.shape[1], FIRST_STEPS, len(b))
    most = min(most, len(b))
    while True:
        step, v = len(kept), newest.T
        if step == V.shape[1]:
            V = torch.cat([V, torch.empty_like(V)], 1)
        V[:, step] = newest
        w, of_step = product(v)
        kept.append(of_step)
        own = (w * v).sum(0)
        diagonal.append(torch.where(v.abs().sum(0) == 0, 1.0, own))
        so_far, rest = V[:, : step + 1], w.T[:, None]
        for _ in range(2):
            rest = rest - (rest @ so_far.mT) @ so_far
        size = rest[:, 0].norm(dim=1)
        T = _tridiagonal(diagonal, beside)
        shares = _residuals(T, size)
        if step + 1 == most or bool((shares <= left).all()) or not bool(own.isfinite().all()):
            return Krylov(so_far, torch.stack(kept), T, shares)
        going = size > 1e-12 * own.abs()
        beside.append(torch.where(going, size, 0.0))
        newest = torch.where(going[:, None], rest[:, 0] / size[:, None], 0.0)


def _tridiagonal(diagonal: list[Tensor], beside: list[Tensor]) -> Tensor:
    """Return the matrices [k, steps, steps] of these diagonals, of [k] each."""
    T = torch.diag_embed(torch.stack(diagonal, 1))
    if beside:
        off = torch.stack(beside, 1)
        T = T + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    return T


def _residuals(T: Tensor, size: Tensor) -> Tensor:
    """Return |b - M x| / |b| of the solution in each basis, [k]."""
    first = torch.zeros(T.shape[:2]).to(T)
    first[:, 0] = 1.0
    solved, _ = torch.linalg.solve_ex(T, first)
    return size * solved[:, -1].abs()


def beside_one_another(columns: Tensor) -> Tensor:
    """Return columns [k, m, r] as [m, k r]."""
    return columns.transpose(0, 1).flatten(1)


def fixed_signs(m: int, count: int, seed: int, like: Tensor) -> Tensor:
    """Return fixed probes of signs, [m, count]."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (m, count), generator=generator, device="cpu")
    return (2 * signs - 1).to(like)


@dataclass(frozen=True)
class LogDet:
    """The estimate of log|M| from probes of signs.

    Attributes:
        value: [].
        error: Its standard error [].
        lowest: The smallest eigenvalue of M in the bases []; the value is that of a positive
            definite M only if this is positive.
        mixed: [k, steps, r]; the slope of the value in M is the sum of a a' over the columns a of
            V_k mixed_k, for all k bases V_k.
    """

    value: Tensor
    error: Tensor
    lowest: Tensor
    mixed: Tensor


def log_det(T: Tensor, m: int) -> LogDet:
    """Return the estimate of log|M| by Gauss quadrature, and its slope.

    The slope is that of the estimate itself once the bases have converged.

    Args:
        T: [k, steps, steps], M in the bases of k probes of signs.
        m: The number of rows of M.
    """
    k = len(T)
    roots, S = torch.linalg.eigh(T)
    lowest = roots.min()
    roots = roots.clamp_min(torch.finfo(roots.dtype).tiny)
    each = m * (S[:, 0].square() * roots.log()).sum(1)
    # the divided differences of log at the eigenvalues of T
    core = S[:, 0, :, None] * S[:, 0, None, :] * _differences_of_log(roots)
    weights, E = torch.linalg.eigh(core)
    keep = (weights > NEGLIGIBLE * weights.max()).any(0)
    weights, E = weights[:, keep].clamp_min(0.0) * (m / k), E[:, :, keep]
    mixed = (S @ E) * weights.sqrt()[:, None]
    return LogDet(each.mean(), each.std() / k**0.5, lowest, mixed)


def _differences_of_log(x: Tensor) -> Tensor:
    """Return the divided differences (log x_i - log x_j) / (x_i - x_j) of x [*, k]."""
    low = torch.minimum(x[..., :, None], x[..., None, :])
    ratio = torch.maximum(x[..., :, None], x[..., None, :]) / low - 1
    near = ratio < 1e-6
    safe = torch.where(near, 1.0, ratio)
    return torch.where(near, 1 - 0.5 * ratio, torch.log1p(safe) / safe) / low
