"""The log density of a Gaussian process that is interpolated from a grid of very many nodes.

The covariance of n rows is W K W' + s2 I, as in ``grid_space``, with K = L L' and
L = L_1 kron ... kron L_p. No matrix of all pairs of nodes is formed. W'W is near
A = A_1 kron ... kron A_p, the sums that the columns would have if they were independent. With
N = L'A L and phi(N) = (I + N / s2)^-1/2,

    log|I + L'W'W L / s2| = log|I + N / s2| + log|M|,  M = phi (I + L'W'W L / s2) phi,

where the first term comes from eigenvalues along each axis, and M is near the identity. Its log
determinant is estimated from fixed probes. Lanczos' method, which is that of conjugate gradients,
gives this and M^-1 b; see ``lanczos``. The slopes are those of the estimate itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from ...numerics.cholesky import LOG_2PI
from ...numerics.kronecker import outer, rotated
from ...numerics.lanczos import Krylov, beside_one_another, fixed_signs, krylov, log_det

__all__ = ["Estimate", "GridSums", "ManyNodes", "Sparse", "estimate", "probes_of"]

PROBES = 8
MOST_STEPS = 150
LEFT = 1e-9  # share of each right-hand side that the steps of Lanczos leave
CHUNK_BYTES = 64 * 2**20


class Sparse(NamedTuple):
    """A sparse matrix [m, m] in compressed rows."""

    starts: Tensor
    columns: Tensor
    values: Tensor

    def times(self, V: Tensor) -> Tensor:
        """Return the product with V [m, k]."""
        m = len(self.starts) - 1
        parts = (self.values, self.columns, self.starts)
        values, columns, starts = (part.cpu().numpy() for part in parts)
        product = csr_matrix((values, columns, starts), shape=(m, m)) @ V.cpu().numpy()
        return torch.from_numpy(product).to(V)


@dataclass(frozen=True, eq=False)
class GridSums:
    """What the estimate needs to know of the rows apart from y.

    Attributes:
        n: The number of rows.
        G: W'W.
        factors: A_i along each axis, [n_i, n_i].
        probes: [m, p], fixed signs.
    """

    n: int
    G: Sparse
    factors: tuple[Tensor, ...]
    probes: Tensor


def probes_of(m: int, seed: int, like: Tensor) -> Tensor:
    """Return fixed probes of signs, [m, PROBES]."""
    return fixed_signs(m, PROBES, seed, like)


@dataclass(frozen=True, eq=False)
class ManyNodes:
    """What M consists of, in the basis of the eigenvectors U of N.

    Attributes:
        G: W'W.
        Us: The eigenvectors of N along each axis.
        Ps: L_i U_i along each axis.
        axes: The eigenvalues of N along each axis.
        c: One over the noise [].
    """

    G: Sparse
    Us: list[Tensor]
    Ps: list[Tensor]
    axes: list[Tensor]
    c: Tensor

    @classmethod
    def at(cls, sums: GridSums, noise: Tensor, Ls: Sequence[Tensor]) -> ManyNodes:
        """Return the parts of M at one noise [] and the roots L_i of one covariance."""
        axes, Us = [], []
        for A, L in zip(sums.factors, Ls, strict=True):
            N = L.mT @ A @ L
            values, U = torch.linalg.eigh(0.5 * (N + N.mT))
            axes.append(values.clamp_min(0.0))
            Us.append(U)
        Ps = [L @ U for L, U in zip(Ls, Us, strict=True)]
        return cls(sums.G, Us, Ps, axes, 1 / noise)

    @property
    def values(self) -> Tensor:
        """The eigenvalues of N, [m]."""
        return outer(self.axes).reshape(-1)

    @property
    def phi(self) -> Tensor:
        """The eigenvalues [m] of the function phi of N."""
        return (1 + self.c * self.values).rsqrt()

    def turned(self, V: Tensor, matrices: Sequence[Tensor]) -> Tensor:
        """Return the product of the Kronecker product of matrices with V [m, k]."""
        shape = [len(U) for U in self.Us]
        return rotated(V.reshape(*shape, -1), matrices).reshape(V.shape)

    def back(self, V: Tensor) -> Tensor:
        """Return U'L'V for V [m, k] at the nodes."""
        return self.turned(V, [P.mT for P in self.Ps])

    def sums(self, V: Tensor) -> Tensor:
        """Return W'W L U phi V for V [m, k], at the nodes."""
        return self.G.times(self.turned(self.phi[:, None] * V, self.Ps))

    def lanczos(self, b: Tensor, left: float = LEFT) -> Krylov:
        """Return the Krylov bases of M from each column of b, which keep ``sums(V)``.

        Args:
            b: [m, k], none of its columns 0.
            left: The share of each column that a solution in the basis may leave.
        """
        phi = self.phi[:, None]

        def product(v: Tensor) -> tuple[Tensor, Tensor]:
            sums = self.sums(v)
            return phi.square() * v + self.c * phi * self.back(sums), sums

        return krylov(product, b, left=left, most=MOST_STEPS)

    def solved(self, b: Tensor, left: float = LEFT) -> Tensor:
        """Return (I + L'W'W L / s2)^-1 b for b [m, k] in the basis U; see ``lanczos``."""
        phi = self.phi[:, None]
        right = phi * b
        size = right.norm(dim=0)
        V, _, T, _ = self.lanczos(torch.where(size > 0, right, 1.0), left)
        first = torch.zeros(T.shape[:2]).to(b)
        first[:, 0] = size
        return phi * torch.einsum("ksm,ks->mk", V, torch.linalg.solve(T, first))

    def left_at(self, R: Tensor, left: float) -> Tensor:
        """Return r'(I + L'W'W L / s2)^-1 r [k] for the columns r of R [m, k], never too small.

        In a Krylov basis it is r'M^-1 r, apart from e'M^-1 e >= 0 with what the basis leaves, e,
        which is at most |e|^2 over the smallest eigenvalue of M, and M - phi^2 is positive
        semidefinite. Golub & Meurant (2010), section 3. The result is that bound, and r'r at most.

        Args:
            R: [m, k], in the basis U.
            left: The share of each column that a basis may leave.
        """
        right = self.phi[:, None] * R
        square = right.square().sum(0)
        found = self.lanczos(torch.where(square > 0, right, 1.0), left)
        first = torch.zeros(found.T.shape[:2]).to(R)
        first[:, 0] = 1.0
        solved = torch.linalg.solve(found.T, first)[:, 0]
        error = found.left.square() / self.phi.min().square()
        return torch.minimum(square * (solved + error), R.square().sum(0))


class Estimate(NamedTuple):
    """The estimated log density.

    Attributes:
        value: [].
        error: The standard error of the value, from the probes [].
        steps: Of Lanczos' method.
        slopes: In the noise, W'r, r'r and each L_i.
        left: The share of the right-hand side that conjugate gradients left.
    """

    value: Tensor
    error: Tensor
    steps: int
    slopes: tuple[Tensor, ...]
    left: float


def estimate(
    sums: GridSums, noise: Tensor, Wr: Tensor, rr: Tensor, Ls: Sequence[Tensor]
) -> Estimate:
    """Return the estimated log N(r; 0, W K W' + noise I), its standard error and its slopes.

    Args:
        sums: Those of the rows.
        noise: [].
        Wr: W'r [m].
        rr: R'r [].
        Ls: The root of the covariance along each axis, [n_i, n_i].
    """
    inputs = (noise, Wr, rr, *Ls)
    if not all(bool(torch.isfinite(x).all()) for x in inputs):
        nan = torch.full_like(rr, torch.nan)
        return Estimate(nan, nan, 0, tuple(torch.full_like(x, torch.nan) for x in inputs), 0.0)
    M = ManyNodes.at(sums, noise, Ls)
    phi, c, m = M.phi, M.c, len(Wr)
    of_Wr = M.back(Wr[:, None])[:, 0]
    b = phi * of_Wr
    size = b.norm()
    start = torch.where(size > 0, b, torch.ones_like(b))
    probes = M.turned(sums.probes, [U.mT for U in M.Us])
    V, products, T, shares = M.lanczos(torch.cat([start[:, None], probes], 1))
    first = torch.zeros(len(products)).to(b)
    first[0] = size
    x = torch.linalg.solve(T[0], first)
    square = size * x[0]
    of_M = log_det(T[1:], m)
    log_det_of_rows = sums.n * noise.log() + torch.log1p(c * M.values).sum() + of_M.value
    value = -0.5 * (log_det_of_rows + c * rr - c**2 * square + sums.n * LOG_2PI)
    # columns a with d(-2 value) = sum a'dM a
    P = products.permute(2, 0, 1)
    u, Gu = V[0].mT @ x, P[0].mT @ x
    a, Ga = (
        torch.cat([beside_one_another(Z[1:].mT @ of_M.mixed), c * z[:, None]], 1)
        for Z, z in ((V, u), (P, Gu))
    )
    back = M.back(Ga)
    # d(-2 value) has the terms left'd(phi) right, and 2 c (dL q)'at_nodes
    left = torch.cat([a, -c * of_Wr[:, None]], 1)
    right = torch.cat([phi[:, None] * a + c * back, c * u[:, None]], 1) * 2
    q = phi[:, None] * torch.cat([a, u[:, None]], 1)
    at_nodes = torch.cat([Ga, -c * Wr[:, None]], 1)
    of_L = []
    for axis, (A, L, U) in enumerate(zip(sums.factors, Ls, M.Us, strict=True)):
        inner = _slope_in_eigenvalues(M, axis, left, right)
        of_N = U @ (0.5 * (inner + inner.mT)) @ U.mT
        moved = M.turned(q, [U if i == axis else P for i, P in enumerate(M.Ps)])
        shape = [len(P) for P in M.Ps]
        direct = _unfolded(at_nodes, shape, axis) @ _unfolded(moved, shape, axis).mT
        of_L.append(-0.5 * (2 * A @ L @ of_N + 2 * c * direct))
    of_c = (M.values * phi.square()).sum() + rr - 2 * c * square
    of_c = of_c - 0.5 * (M.values * phi**3) @ (left * right).sum(1) + phi @ (a * back).sum(1)
    of_noise = sums.n / noise - of_c * c**2
    slope_of_Wr = c**2 * M.turned((phi * u)[:, None], M.Ps)[:, 0]
    slopes = (-0.5 * of_noise, slope_of_Wr, -0.5 * c, *of_L)
    return Estimate(value, 0.5 * of_M.error, len(products), slopes, float(shares[0]))


def _unfolded(T: Tensor, shape: list[int], axis: int) -> Tensor:
    """Return T [m, k] with one row per entry of an axis."""
    return T.reshape(*shape, -1).movedim(axis, 0).reshape(shape[axis], -1)


def _slope_in_eigenvalues(M: ManyNodes, axis: int, left: Tensor, right: Tensor) -> Tensor:
    """Return the slope of left'phi(N) right + log|I + N / s2| in N_axis, in the basis U.

    With a = 1 + c x, the divided differences of phi are -c / (a^1/2 b^1/2 (a^1/2 + b^1/2)).
    """
    shape = [len(U) for U in M.Us]
    count = shape[axis]

    def by_axis(T: Tensor) -> Tensor:
        """Return T [m, k] as [others, count, k]."""
        return T.reshape(*shape, -1).movedim(axis, -2).reshape(-1, count, T.shape[1])

    phi = by_axis(M.phi[:, None])[:, :, 0]
    others = outer([v for i, v in enumerate(M.axes) if i != axis]).reshape(-1).to(phi)
    left, right = by_axis(left), by_axis(right)
    total = torch.diag((M.c * others[:, None] * phi.square()).sum(0))
    width = max(1, CHUNK_BYTES // (8 * count * (count + 2 * left.shape[2])))
    for row in range(0, len(phi), width):
        part = slice(row, row + width)
        one, two = phi[part, :, None], phi[part, None, :]
        differences = -M.c * (one * two) ** 2 / (one + two)
        both = left[part] @ right[part].mT
        total = total + (others[part, None, None] * differences * both).sum(0)
    return total
