"""The log density of a Gaussian process that is interpolated from a grid of very many nodes.

The covariance of n rows is W K W' + s2 I, as in ``grid_space``, with K = L L' and
L = L_1 kron ... kron L_p. No matrix of all pairs of nodes is formed. W'W is near
A = A_1 kron ... kron A_p, the sums that the columns would have if they were independent. With
N = L'A L and phi(N) = (I + N / s2)^-1/2,

    log|I + L'W'W L / s2| = log|I + N / s2| + log|M|,  M = phi (I + L'W'W L / s2) phi,

where the first term comes from eigenvalues along each axis, and M is near the identity. Its log
determinant is estimated from fixed probes z by z'log(M) z. Lanczos' method, which is that of
conjugate gradients, gives this and M^-1 b: Ubaru, Chen & Saad (2017); Gardner, Pleiss, Bindel,
Weinberger & Wilson (2018). The slopes are those of the estimate itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from .cholesky import LOG_2PI
from .kronecker import outer, rotated

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
        n: the number of rows.
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
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (m, PROBES), generator=generator)
    return (2 * signs - 1).to(like)


@dataclass(frozen=True, eq=False)
class ManyNodes:
    """What M consists of, in the basis of the eigenvectors U of N.

    Attributes:
        G: W'W.
        Us: the eigenvectors of N along each axis.
        Ps: L_i U_i along each axis.
        axes: the eigenvalues of N along each axis.
        c: one over the noise [].
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

    def lanczos(self, b: Tensor, left: float = LEFT) -> tuple[Tensor, ...]:
        """Return the Krylov bases of M from each column of b, with full reorthogonalisation.

        Args:
            b: [m, k], none of its columns 0.
            left: the share of each column that a solution in the basis may leave.

        Returns:
            The bases V [steps, m, k], ``sums(V)``, M in the bases T [k, steps, steps], and the
            shares that are left [k], which are larger than ``left`` after ``MOST_STEPS``.
        """
        phi = self.phi[:, None]
        basis, products, diagonal, beside = [b / b.norm(dim=0)], [], [], []
        most = min(MOST_STEPS, len(b))
        while True:
            v = basis[-1]
            products.append(self.sums(v))
            w = phi.square() * v + self.c * phi * self.back(products[-1])
            own = (w * v).sum(0)
            diagonal.append(torch.where(v.abs().sum(0) == 0, 1.0, own))
            V = torch.stack(basis)
            for _ in range(2):
                w = w - torch.einsum("smk,sk->mk", V, torch.einsum("smk,mk->sk", V, w))
            size = w.norm(dim=0)
            T = _tridiagonal(diagonal, beside)
            shares = _residuals(T, size)
            if len(basis) == most or bool((shares <= left).all()):
                return V, torch.stack(products), T, shares
            going = size > 1e-12 * own.abs()
            beside.append(torch.where(going, size, 0.0))
            basis.append(torch.where(going, w / size, 0.0))

    def solved(self, b: Tensor, left: float = LEFT) -> Tensor:
        """Return (I + L'W'W L / s2)^-1 b for b [m, k] in the basis U; see ``lanczos``."""
        phi = self.phi[:, None]
        right = phi * b
        size = right.norm(dim=0)
        V, _, T, _ = self.lanczos(torch.where(size > 0, right, 1.0), left)
        first = torch.zeros(T.shape[:2]).to(b)
        first[:, 0] = size
        return phi * torch.einsum("smk,ks->mk", V, torch.linalg.solve(T, first))


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
    return size * torch.linalg.solve(T, first)[:, -1].abs()


class Estimate(NamedTuple):
    """The estimated log density.

    Attributes:
        value: [].
        error: the standard error of the value, from the probes [].
        steps: of Lanczos' method.
        slopes: in the noise, W'r, r'r and each L_i.
        left: the share of the right-hand side that conjugate gradients left.
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
        sums: those of the rows.
        noise: [].
        Wr: W'r [m].
        rr: r'r [].
        Ls: the root of the covariance along each axis, [n_i, n_i].
    """
    inputs = (noise, Wr, rr, *Ls)
    if not all(bool(torch.isfinite(x).all()) for x in inputs):
        nan = torch.full_like(rr, torch.nan)
        return Estimate(nan, nan, 0, tuple(torch.full_like(x, torch.nan) for x in inputs), 0.0)
    M = ManyNodes.at(sums, noise, Ls)
    phi, c, m, p = M.phi, M.c, len(Wr), sums.probes.shape[1]
    of_Wr = M.back(Wr[:, None])[:, 0]
    b = phi * of_Wr
    size = b.norm()
    start = torch.where(size > 0, b, torch.ones_like(b))
    probes = M.turned(sums.probes, [U.mT for U in M.Us])
    V, products, T, shares = M.lanczos(torch.cat([start[:, None], probes], 1))
    first = torch.zeros(len(V)).to(b)
    first[0] = size
    x = torch.linalg.solve(T[0], first)
    square = size * x[0]
    # Gauss quadrature: the eigenvalues of T, and the squared first entries of their vectors
    roots, S = torch.linalg.eigh(T[1:])
    roots = roots.clamp_min(torch.finfo(roots.dtype).tiny)
    each = m * (S[:, 0].square() * roots.log()).sum(1)
    log_det = sums.n * noise.log() + torch.log1p(c * M.values).sum() + each.mean()
    value = -0.5 * (log_det + c * rr - c**2 * square + sums.n * LOG_2PI)
    error = 0.5 * each.std() / p**0.5

    # columns a with d(-2 value) = sum a'dM a; those of the log determinant are a root of the
    # divided differences of log at the eigenvalues of T
    core = S[:, 0, :, None] * S[:, 0, None, :] * _differences_of_log(roots)
    weights, E = torch.linalg.eigh(core)
    keep = (weights > 1e-13 * weights.max()).any(0)
    weights, E = weights[:, keep].clamp_min(0.0) * (m / p), E[:, :, keep]
    mixed = (S @ E) * weights.sqrt()[:, None]
    u, Gu = V[:, :, 0].mT @ x, products[:, :, 0].mT @ x
    a, Ga = (
        torch.cat([torch.einsum("smk,ksr->mkr", Z[:, :, 1:], mixed).flatten(1), c * z[:, None]], 1)
        for Z, z in ((V, u), (products, Gu))
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
    return Estimate(value, error, len(V), slopes, float(shares[0]))


def _unfolded(T: Tensor, shape: list[int], axis: int) -> Tensor:
    """Return T [m, k] with one row per entry of an axis."""
    return T.reshape(*shape, -1).movedim(axis, 0).reshape(shape[axis], -1)


def _differences_of_log(x: Tensor) -> Tensor:
    """Return the divided differences (log x_i - log x_j) / (x_i - x_j) of x [*, k]."""
    low = torch.minimum(x[..., :, None], x[..., None, :])
    ratio = torch.maximum(x[..., :, None], x[..., None, :]) / low - 1
    near = ratio < 1e-6
    safe = torch.where(near, 1.0, ratio)
    return torch.where(near, 1 - 0.5 * ratio, torch.log1p(safe) / safe) / low


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
