"""The log density of Gaussian noise around a function on a complete grid, by eigenvectors.

The covariance of the cells is C = K_1 kron ... kron K_p + noise I with K_i = Q_i diag(l_i) Q_i'.
Rotated by all Q_i it is diagonal: lam = l_1 ... l_p + noise. Saatci (2011), chapter 5.

No derivative goes through the eigenvectors, which have none where eigenvalues coincide. First and
second derivatives are formulas in A = (Q' R) / lam, where R holds the residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from ...numerics.cholesky import LOG_2PI

__all__ = ["GridMarginal", "along", "eigen", "kronecker_log_density", "outer", "rotated"]


def along(T: Tensor, M: Tensor, axis: int) -> Tensor:
    """Return T with the matrix M applied along one axis: the sum of M[i, j] T[.., j, ..] over j."""
    moved = T.movedim(axis, 0)
    product = M @ moved.reshape(T.shape[axis], -1)
    return product.reshape(len(M), *moved.shape[1:]).movedim(0, axis)


def rotated(T: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Return T with one matrix applied along each axis."""
    for axis, M in enumerate(matrices):
        T = along(T, M, axis)
    return T


def outer(vectors: Sequence[Tensor]) -> Tensor:
    """Return the outer product of vectors: [n_1, ..., n_p]; 1 if there are none."""
    if not vectors:
        return torch.ones(())
    return reduce(lambda product, v: product[..., None] * v, vectors)


def eigen(K: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues [n] and eigenvectors [n, n] of a covariance.

    Eigenvalues below 0, which are rounding errors, are 0. They are NaN where K is not finite.
    """
    finite = torch.isfinite(K).all()
    eye = torch.eye(len(K), dtype=K.dtype, device=K.device)
    values, vectors = torch.linalg.eigh(torch.where(finite, K, eye))
    one = torch.ones((), dtype=K.dtype, device=K.device)
    return values.clamp_min(0.0) * torch.where(finite, one, math.nan * one), vectors


def _unfolded(T: Tensor, axis: int) -> Tensor:
    """Return T as a matrix with one row per entry of an axis."""
    return T.movedim(axis, 0).reshape(T.shape[axis], -1)


def _others(vectors: Sequence[Tensor], axis: int) -> Tensor:
    """Return the outer product of the vectors of all other axes, flat."""
    rest = [v for i, v in enumerate(vectors) if i != axis]
    return outer(rest).reshape(-1).to(vectors[axis])


def _change_of_others(vectors: Sequence[Tensor], changes: Sequence[Tensor], axis: int) -> Tensor:
    """Return the change of ``_others`` where each vector changes."""
    total = torch.zeros_like(_others(vectors, axis))
    for j in range(len(vectors)):
        if j != axis:
            moved = [changes[i] if i == j else v for i, v in enumerate(vectors)]
            total = total + _others(moved, axis)
    return total


def _only(axis: int, p: int) -> list[int]:
    """Return the shape in which a vector lies along one of p axes."""
    return [-1 if i == axis else 1 for i in range(p)]


def _with_others_changed(
    A: Tensor, Ms: Sequence[Tensor], ls: Sequence[Tensor], axis: int
) -> Tensor:
    """Return A with the change of the covariance of all other axes applied."""
    total = torch.zeros_like(A)
    for j, M in enumerate(Ms):
        if j != axis:
            scaled = A
            for i, values in enumerate(ls):
                if i not in (j, axis):
                    scaled = scaled * values.reshape(_only(i, len(ls)))
            total = total + along(scaled, M, j)
    return total


class _Slopes(torch.autograd.Function):
    """The gradient of the log density: those in R, the noise and each K_i.

    Its own derivative is one product with the second derivatives of the log density, which are
    symmetric: the change of the gradient along a direction.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(needs_R: Any, p: Any, R: Any, noise: Any, A: Any, *factors: Any) -> Any:
        Qs, ls = factors[p : 2 * p], factors[2 * p :]
        W = 1 / (outer(ls) + noise)
        slopes = []
        for i, Q in enumerate(Qs):
            A_i, rest = _unfolded(A, i), _others(ls, i)
            core = (A_i * rest) @ A_i.mT
            core = core - torch.diag_embed((_unfolded(W, i) * rest).sum(-1))
            slopes.append(0.5 * Q @ core @ Q.mT)
        slope_R = -rotated(A, Qs) if needs_R else torch.zeros_like(R)
        return slope_R, 0.5 * (A.square().sum() - W.sum()), *slopes

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.needs_R, ctx.p = inputs[:2]
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        p = ctx.p
        noise, A, *factors = ctx.saved_tensors
        Qs, ls = factors[p : 2 * p], factors[2 * p :]
        U_R, u, *U = grad_outputs
        Ms = [Q.mT @ (0.5 * (V + V.mT)) @ Q for Q, V in zip(Qs, U, strict=True)]
        changes = [M.diagonal() for M in Ms]
        W = 1 / (outer(ls) + noise)
        moved, change_of_lam = u * A, u * torch.ones_like(W)
        for i, M in enumerate(Ms):
            rest = _others(ls, i).reshape([1 if j == i else n for j, n in enumerate(A.shape)])
            moved = moved + along(A * rest, M, i)
            change_of_lam = change_of_lam + rest * changes[i].reshape(_only(i, p))
        if ctx.needs_R:
            moved = moved - rotated(U_R, [Q.mT for Q in Qs])
        dA = -W * moved
        slopes = []
        for i, (Q, M) in enumerate(zip(Qs, Ms, strict=True)):
            A_i, W_i, rest = _unfolded(A, i), _unfolded(W, i), _others(ls, i)
            change = _change_of_others(ls, changes, i)
            half = (_unfolded(dA, i) * rest) @ A_i.mT
            core = half + half.mT + _unfolded(_with_others_changed(A, Ms, ls, i), i) @ A_i.mT
            core = core + M * ((W_i * rest.square()) @ W_i.mT)
            lam_of_others = ls[i][:, None] * change + u
            diagonal = W_i.square() * rest * lam_of_others - W_i * change
            slopes.append(0.5 * Q @ (core + torch.diag_embed(diagonal.sum(-1))) @ Q.mT)
        change_in_noise = (A * dA).sum() + 0.5 * (W.square() * change_of_lam).sum()
        change_in_R = -rotated(dA, Qs) if ctx.needs_R else None
        nothing = (None,) * (1 + 2 * p)  # A, Q and l are functions of the other inputs
        return None, None, change_in_R, change_in_noise, nothing[0], *slopes, *nothing[1:]


class _KroneckerLogDensity(torch.autograd.Function):
    """log N(R; 0, K_1 kron ... kron K_p + noise I) with an explicit gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(R: Any, noise: Any, *Ks: Any) -> Any:
        pairs = [eigen(K) for K in Ks]
        Qs, ls = [Q for _, Q in pairs], [values for values, _ in pairs]
        lam = outer(ls) + noise
        rotated_R = rotated(R, [Q.mT for Q in Qs])
        A = rotated_R / lam
        value = -0.5 * ((A * rotated_R).sum() + lam.log().sum() + R.numel() * LOG_2PI)
        return value, A, *Qs, *ls

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        p = (len(ctx.saved_tensors) - 3) // 3
        R, noise, *rest = ctx.saved_tensors
        Ks, A, factors = rest[:p], rest[p], rest[p + 1 :]
        slopes: Any = _Slopes.apply(ctx.needs_input_grad[0], p, R, noise, A, *Ks, *factors)
        return tuple(grad_outputs[0] * slope for slope in slopes)


def kronecker_log_density(R: Tensor, noise: Tensor, Ks: Sequence[Tensor]) -> Tensor:
    """Return log N(R; 0, K_1 kron ... kron K_p + noise I), with first and second derivatives.

    Saatci (2011), section 5.2. The cost is O(n (n_1 + ... + n_p)) beside the eigenvectors.

    Args:
        R: The residuals of the cells [n_1, ..., n_p].
        noise: The variance of the noise [].
        Ks: The covariance of the levels along each axis, [n_i, n_i].

    Returns:
        []; NaN where a covariance is not finite.
    """
    outputs: Any = _KroneckerLogDensity.apply(R, noise, *Ks)
    return outputs[0]


class GridMarginal(dist.TorchDistribution):
    """N(loc, K + noise I) over rows that are the cells of a complete grid.

    Args:
        loc: [n], the mean.
        Ks: The covariance of the levels along each axis, [n_i, n_i].
        noise: [], the variance of the noise.
        cell: [n], the number of the cell of each row, in the order of a flat grid.
    """

    arg_constraints: Any = {"loc": constraints.real_vector}
    support: Any = constraints.real_vector

    def __init__(self, loc: Tensor, Ks: Sequence[Tensor], noise: Tensor, cell: Tensor) -> None:
        self.loc, self.Ks, self.noise, self.cell = loc, tuple(Ks), noise, cell
        super().__init__(torch.Size(), loc.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> GridMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("GridMarginal has no batch shape")
        return self

    @property
    def _shape(self) -> list[int]:
        return [len(K) for K in self.Ks]

    def log_prob(self, value: Tensor) -> Tensor:
        R = torch.zeros_like(self.loc).index_copy(0, self.cell, value - self.loc)
        return kronecker_log_density(R.reshape(self._shape), self.noise, self.Ks)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            roots = []
            for K in self.Ks:
                values, Q = eigen(K)
                roots.append(Q * values.sqrt())
            draws = []
            for _ in range(math.prod(shape)):
                white = torch.randn(self._shape, dtype=self.loc.dtype, device=self.loc.device)
                draws.append(rotated(white, roots).reshape(-1)[self.cell])
            f = torch.stack(draws).reshape(*shape, len(self.cell))
            return self.loc + f + self.noise.sqrt() * torch.randn_like(f)
