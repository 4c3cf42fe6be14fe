"""A latent Gaussian vector whose precision has a sparse root, given Gaussian rows.

h ~ N(0, (U'U)^-1), where U is lower triangular with few entries a row, and row i of the data has
the precision W_i about h_i. In the coordinates U h the precision of h given the rows is

    A = I + U^-T W U^-1,

and log|I + K W| = log|A|. A product with A takes two triangular solves. The first rows have all
others near them, and cause the large eigenvalues of A: they are eliminated exactly. What remains
is scaled by the diagonal I + D W, where D are the conditional variances 1 / U_ii^2. Conjugate
gradients solve with it, and its log determinant is estimated from fixed probes; see ``lanczos``.

Without the elimination this is conjugate gradients for W + U'U with the preconditioner VADU of
Kuendig & Sigrist (2025), section 3.2, in other coordinates. A sparse Cholesky factor of W + U'U
gives its determinant exactly, but the slopes need the inverse at the entries of U'U, which SciPy
does not compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor

from ...numerics.conjugate_gradients import conjugate_gradients
from ...numerics.lanczos import Krylov, LogDet, beside_one_another, fixed_signs, krylov, log_det
from ...numerics.latent_laplace import root_of
from ...runtime.seeding import standard_normal

__all__ = ["SparseConditioned", "SparsePrior", "SparseRoot"]

FIRST = 200  # rows that are eliminated exactly
PROBES = 16
MOST_STEPS = 300
LEFT = 1e-5  # share of each probe that the steps of Lanczos leave
MOST_STEPS_OF_SOLVE = 3000
LEFT_OF_SOLVE = 1e-10  # share of a right-hand side that conjugate gradients leave
NOT_SOLVED = 1e-6  # a larger share that is left is no solution
DRAWS_AT_ONCE = 16
LEFT_OF_DRAWS = 1e-4
ROWS_AT_ONCE = 512  # whose products stay in the cache of a core


class SparseRoot:
    """U [n, n], lower triangular. All numbers are finite, and those on the diagonal positive.

    Args:
        entries: [k, n], those of each row, the diagonal last.
        members: [n, k], their columns; -1 for none, whose entry does not count.
    """

    def __init__(self, entries: Tensor, members: Tensor) -> None:
        k, n = entries.shape
        self.entries, self.members = entries, members
        columns = members.cpu().numpy()
        there = columns >= 0
        values = entries.detach().double().T.cpu().numpy()
        rows = np.repeat(np.arange(n), k).reshape(n, k)
        parts = (values[there], (rows[there], columns[there]))
        self._matrix = sparse.csr_array(parts, shape=(n, n))
        # of a triangular matrix in its own order, the factors are itself and a diagonal
        options = {"SymmetricMode": True, "Equil": False}
        self._factor = splu(
            sparse.csc_array(self._matrix),
            permc_spec="NATURAL",
            diag_pivot_thresh=0.0,
            options=options,
        )

    @property
    def diagonal(self) -> Tensor:
        """The diagonal, [n]."""
        return self.entries[-1]

    def times(self, V: Tensor) -> Tensor:
        """Return U V for V [n, q]."""
        return torch.from_numpy(self._matrix @ _array(V)).to(V)

    def solved(self, V: Tensor) -> Tensor:
        """Return U^-1 V for V [n, q]."""
        return torch.from_numpy(self._factor.solve(_array(V))).to(V)

    def solved_transposed(self, V: Tensor) -> Tensor:
        """Return U^-T V for V [n, q]."""
        return torch.from_numpy(self._factor.solve(_array(V), "T")).to(V)

    def at_entries(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the entries [k, n] of left right' at those of U, for left and right [n, q]."""
        found = torch.zeros_like(self.members, dtype=left.dtype)
        for row in range(0, len(left), ROWS_AT_ONCE):
            part = slice(row, row + ROWS_AT_ONCE)
            columns = self.members[part].clamp_min(0).long()
            found[part] = (right[columns] @ left[part, :, None])[..., 0]
        return torch.where(self.members >= 0, found, 0.0).T


def _array(V: Tensor) -> np.ndarray:
    return V.detach().double().cpu().numpy()


class SparsePrior:
    """N(0, (U'U)^-1); see ``latent_mode.LatentPrior``.

    Args:
        entries: [k, n], those of the rows of U, the diagonal last.
        members: [n, k], their columns; -1 for none.
        seed: The seed of the probes.
    """

    def __init__(self, entries: Tensor, members: Tensor, seed: int) -> None:
        self.root, self.seed = SparseRoot(entries, members), seed
        self.n = entries.shape[1]
        self.first = min(FIRST, self.n // 2)
        self.conditional = self.root.diagonal.square().reciprocal()

    @cached_property
    def of_first(self) -> Tensor:
        """The columns of U^-1 that belong to the first rows, [n, first]."""
        return self.root.solved(torch.eye(self.n, self.first).to(self.conditional))

    @cached_property
    def probes(self) -> Tensor:
        """Fixed probes of the other rows."""
        return fixed_signs(self.n - self.first, PROBES, self.seed, self.conditional)

    def rough_step(self, W: Tensor, b: Tensor) -> None:
        """Return None: no step is faster than that of ``given``."""

    def given(self, W: Tensor, b: Tensor, *, differentiable: bool = False) -> SparseConditioned:
        """Return h given Gaussian rows; see ``latent_mode.LatentPrior``."""
        assert not differentiable
        precision = Precision(self, W)
        h = precision.solved(b)
        return SparseConditioned(precision, b - W * h, h)


class Precision:
    """A of one W, with the first rows eliminated.

    Args:
        prior: That of h.
        W: [n], the precision of each row.
    """

    def __init__(self, prior: SparsePrior, W: Tensor) -> None:
        self.prior, self.W = prior, W
        self.U, self.Y = prior.root, prior.of_first
        block = self.Y.mT @ (W[:, None] * self.Y)
        block.diagonal().add_(1.0)
        self.L = root_of(block)  # of the rows of A that belong to the first rows
        self.others = slice(prior.first, prior.n)
        expected = W[self.others].clamp_min(0.0)
        self.scale = (1 + prior.conditional[self.others] * expected).rsqrt()[:, None]

    def extended(self, x: Tensor) -> Tensor:
        """Return U^-1 v [n, q] for v = x at the other rows, and A v = 0 at the first."""
        c = self.U.solved(torch.nn.functional.pad(x, (0, 0, self.prior.first, 0)))
        return c - self.Y @ torch.cholesky_solve(self.Y.mT @ (self.W[:, None] * c), self.L)

    def back(self, c: Tensor) -> Tensor:
        """Return U^-T W c [n, q]."""
        return self.U.solved_transposed(self.W[:, None] * c)

    def product(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scaled Schur complement M times v [others, q], and nothing to keep."""
        x = self.scale * v
        return self.scale * (x + self.back(self.extended(x))[self.others]), v[:0]

    def solved(self, b: Tensor) -> Tensor:
        """Return (W + U'U)^-1 b [n]; NaN if there is no solution."""
        right = self.U.solved_transposed(b[:, None])
        shift = torch.cholesky_solve(right[: self.prior.first], self.L)
        of_first = self.Y @ shift
        right = self.scale * (right - self.back(of_first))[self.others]
        if not bool(right.isfinite().all()):
            return torch.full_like(b, math.nan)

        def product(v: Tensor) -> Tensor:
            return self.product(v[:, None])[0][:, 0]

        x, residual = conjugate_gradients(
            product, right[:, 0], steps=MOST_STEPS_OF_SOLVE, left=LEFT_OF_SOLVE
        )
        if not float(residual.norm()) <= NOT_SOLVED * float(right.norm()):
            return torch.full_like(b, math.nan)
        return (self.extended(self.scale * x[:, None]) + of_first)[:, 0]

    @cached_property
    def krylov(self) -> Krylov:
        """The bases of M from the probes."""
        return krylov(self.product, self.prior.probes, left=LEFT, most=MOST_STEPS)

    @cached_property
    def log_det(self) -> LogDet:
        """The estimate of log|M|."""
        return log_det(self.krylov.T, len(self.scale))

    def half_log_det(self) -> Tensor:
        """Return log|A| / 2, estimated; NaN if A is not positive definite."""
        if not bool(self.L.isfinite().all()):
            return self.W.new_tensor(math.nan)
        exact = self.L.diagonal().log().sum() - self.scale.log().sum()
        value = exact + 0.5 * self.log_det.value
        return torch.where(self.log_det.lowest > 0, value, math.nan)

    @cached_property
    def log_det_slopes(self) -> tuple[Tensor, Tensor]:
        """The slopes of log|A| / 2 in the entries of U [k, n], and of log|A| in W [n].

        The slope in A is the sum of v v' / 2 over columns v: the inverse of the root of the first
        rows, and those of the estimate.
        """
        a = beside_one_another(self.krylov.V.mT @ self.log_det.mixed)
        x = self.scale * a
        c = self.extended(x)
        e = self.back(c)
        # of the scale, as if it were free
        free = self.scale[:, 0].square() * (1 - (x * (x + e[self.others])).sum(1))
        exact = torch.linalg.solve_triangular(self.L, self.Y.mT, upper=False).mT
        entries = -self.U.at_entries(torch.cat([e, self.back(exact)], 1), torch.cat([c, exact], 1))
        W, diagonal = self.W[self.others], self.U.diagonal[self.others]
        entries[-1, self.others] -= free * W.clamp_min(0.0) / diagonal**3
        of_W = c.square().sum(1) + exact.square().sum(1)
        of_W[self.others] += torch.where(W > 0, free * self.prior.conditional[self.others], 0.0)
        return entries, of_W

    def covariance_root(self, count: int, seed: int) -> Tensor:
        """Return C [n, first + count], where C C' estimates the covariance of h.

        The part that the first rows explain is exact, and the rest comes from draws.
        """
        generator = torch.Generator().manual_seed(seed)
        parts = [torch.linalg.solve_triangular(self.L, self.Y.mT, upper=False).mT]
        for start in range(0, count, DRAWS_AT_ONCE):
            shape = len(self.scale), min(DRAWS_AT_ONCE, count - start)
            z = standard_normal(generator, *shape).to(self.W)
            bases = krylov(self.product, z, left=LEFT_OF_DRAWS, most=MOST_STEPS)
            x = self.scale * bases.applied(torch.rsqrt, z.norm(dim=0))
            parts.append(self.extended(x) / count**0.5)
        return torch.cat(parts, 1)


@dataclass(frozen=True)
class SparseConditioned:
    """h given Gaussian rows; see ``latent_mode.Conditioned``.

    The determinant is estimated, and ``variance`` is twice the slope of the estimate of
    ``half_log_det`` in W: right on average over probes, not for each row.

    Attributes:
        precision: That of h.
        a: [n].
        h: [n].
    """

    precision: Precision
    a: Tensor
    h: Tensor

    def half_log_det(self) -> Tensor:
        return self.precision.half_log_det()

    def variance(self) -> Tensor:
        return self.precision.log_det_slopes[1]

    def slopes(self, u: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        s, U = self.precision.solved(u), self.precision.U
        both = torch.stack([self.h, s], 1)
        of_h, of_s = U.times(both).split(1, 1)
        left = -torch.cat([of_h + of_s, of_h], 1)
        entries = U.at_entries(left, both) - self.precision.log_det_slopes[0]
        return u - self.precision.W * s, s, (entries,)
