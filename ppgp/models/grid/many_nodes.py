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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyro.distributions as dist
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.distributions import constraints

from ...numerics.cholesky import LOG_2PI
from ...numerics.known_slopes import with_known_slopes
from ...numerics.lanczos import Krylov, beside_one_another, fixed_signs, krylov, log_det
from ...runtime.team import Team
from .cubic_interpolation import Axis, interpolation
from .grid_statistics import about_origin, count_and_mean, moved, statistics, sums_about
from .kronecker import outer, rotated

PROBES = 8
MOST_STEPS = 150
LEFT = 1e-9  # share of each right-hand side that the steps of Lanczos leave
LEFT_BY_VARIANCES = 1e-6  # share of a right-hand side that a variance may leave
ROWS_AT_ONCE = 20_000  # whose weights are held
SOLVES = 64  # rows of predictions that are solved for at once
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
        turned = M.turned(q, [U if i == axis else P for i, P in enumerate(M.Ps)])
        shape = [len(P) for P in M.Ps]
        direct = _unfolded(at_nodes, shape, axis) @ _unfolded(turned, shape, axis).mT
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


class RowSums(NamedTuple):
    """Sums over rows as plain tensors, which can be kept.

    Attributes:
        starts, columns, values: W'W in compressed rows.
        Wz: W'z [m] with z = y - origin.
        W1: The sums of the columns of W [m].
        z: The sum of z.
        zz: Z'z.
        origin: A number near y [], see ``GridStatistics``.
        factors: The sums W'W of each column alone, the later ones over n; [n_i, n_i].
        n: The number of rows.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor
    Wz: Tensor
    W1: Tensor
    z: Tensor
    zz: Tensor
    origin: Tensor
    factors: tuple[Tensor, ...]
    n: int

    def about(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return W'r [m] and r'r for r = y - mean."""
        return sums_about(mean - self.origin, self.Wz, self.W1, self.z, self.zz, self.n)

    def grid_sums(self, seed: int) -> GridSums:
        """Return the part that the log density reads, with probes from a seed."""
        probes = probes_of(len(self.W1), seed, self.W1)
        G = Sparse(self.starts, self.columns, self.values)
        return GridSums(self.n, G, self.factors, probes)

    def over_ranks(self, team: Team) -> RowSums:
        """Return the sums over the rows of all ranks of a team, about the mean of all targets."""
        if team.alone:
            return self
        n, origin = count_and_mean(self.n, self.origin, team)
        Wz, z, zz = moved(origin - self.origin, self.Wz, self.W1, self.z, self.zz, self.n)
        first, *later = self.factors
        parts = (Wz, self.W1, z, zz, first, *(self.n * A for A in later))
        Wz, W1, z, zz, first, *later = team.sums(*parts)
        factors = (first, *(A / n for A in later))
        return RowSums(*self._entries_of_all(team), Wz, W1, z, zz, origin, factors, n)

    def _entries_of_all(self, team: Team) -> tuple[Tensor, Tensor, Tensor]:
        """Return W'W over the rows of all ranks, in compressed rows."""
        m = len(self.W1)
        rows = torch.repeat_interleave(self.starts.diff().long())
        i, j, values = (team.rows_of_all(part) for part in (rows, self.columns, self.values))
        entries = values.cpu().numpy(), (i.cpu().numpy(), j.cpu().numpy())
        return _compressed(csr_matrix(entries, shape=(m, m)), self.values)


def row_sums(X: Tensor, y: Tensor, axes: Sequence[Axis]) -> RowSums:
    """Return the sums over the rows of X [n, d] and y [n]."""
    m, near = math.prod(axis.nodes for axis in axes), 4 ** len(axes)
    G = csr_matrix((m, m))
    z, origin = about_origin(y.detach(), X)
    sums = np.zeros((2, m))
    for row in range(0, len(X), ROWS_AT_ONCE):
        at, weights = interpolation(X[row : row + ROWS_AT_ONCE].detach(), axes)
        ends = np.arange(0, near * len(at) + 1, near)
        entries = weights.double().cpu().numpy().ravel()
        W = csr_matrix((entries, at.cpu().numpy().ravel(), ends), shape=(len(at), m))
        G = G + W.T @ W
        targets = z[row : row + ROWS_AT_ONCE].cpu().numpy()
        sums += np.stack([W.T @ targets, W.T @ np.ones_like(targets)])
    both = torch.from_numpy(sums).to(X)
    factors = tuple(
        statistics(X[:, [k]], y, [axis]).G / (1 if k == 0 else len(X))
        for k, axis in enumerate(axes)
    )
    total, square = z.sum().to(X), z.square().sum().to(X)
    entries = _compressed(csr_matrix(G), X)
    return RowSums(*entries, both[0], both[1], total, square, origin, factors, len(X))


def _compressed(G: csr_matrix, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return starts, columns and values of a sparse matrix, its columns in order."""
    G.sort_indices()
    starts, columns = (torch.from_numpy(part).to(like.device) for part in (G.indptr, G.indices))
    return starts, columns, torch.from_numpy(G.data).to(like)


def explained(M: ManyNodes, at: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variance [t] of f interpolated at rows, before and after the training rows.

    The second is an upper bound, close where Lanczos' method converges; see ``left_at``.

    Args:
        M: The parts of the posterior of f at the nodes.
        at: The nodes that each row reads [t, 4^d].
        weights: Their weights [t, 4^d].
    """
    before, after = weights.new_zeros(len(at)), weights.new_zeros(len(at))
    for row in range(0, len(at), SOLVES):
        part = slice(row, row + SOLVES)
        R = from_nodes(M, at[part], weights[part])
        before[part] = R.square().sum(0)
        after[part] = M.left_at(R, LEFT_BY_VARIANCES)
    return before, after


def from_nodes(M: ManyNodes, at: Tensor, weights: Tensor) -> Tensor:
    """Return U'L'W' [m, t] for the weights of t rows."""
    m = math.prod(len(U) for U in M.Us)
    W = weights.new_zeros(len(at), m).scatter_add(1, at, weights)
    return M.back(W.mT)


def estimated_log_density(
    sums: GridSums, noise: Tensor, Wr: Tensor, rr: Tensor, Ls: Sequence[Tensor]
) -> Tensor:
    """Return the value of ``estimate``, with first and second derivatives."""

    def evaluate(noise: Tensor, Wr: Tensor, rr: Tensor, *Ls: Tensor) -> tuple[Tensor, Any]:
        found = estimate(sums, noise, Wr, rr, Ls)
        return found.value, found.slopes

    return with_known_slopes(evaluate, noise, Wr, rr, *Ls)


class ManyNodesMarginal(dist.TorchDistribution):
    """N(mean, W K W' + noise I) over all rows at once, its log density estimated.

    Args:
        mean: [], a constant mean, or [n].
        Ls: The root of the covariance of the nodes along each axis, [n_i, n_i].
        noise: [], the variance of the noise.
        n: The number of rows.
        sums: The function of y [n] and the mean -> the sums of the rows, with W'r [m] and r'r []
            of the residuals r.
        interpolated: The function f at the nodes [m] -> f at the rows [n].
    """

    arg_constraints: Any = {"mean_of_rows": constraints.real}
    support: Any = constraints.real_vector

    def __init__(
        self,
        mean: Tensor,
        Ls: Sequence[Tensor],
        noise: Tensor,
        n: int,
        sums: Callable[[Tensor, Tensor], tuple[GridSums, Tensor, Tensor]],
        interpolated: Callable[[Tensor], Tensor],
    ) -> None:
        self.mean_of_rows, self.Ls, self.noise = mean, tuple(Ls), noise
        self.n, self.sums, self.interpolated = n, sums, interpolated
        super().__init__(torch.Size(), torch.Size([n]), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> ManyNodesMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("ManyNodesMarginal has no batch shape")
        return self

    def log_prob(self, value: Tensor) -> Tensor:
        sums, Wr, rr = self.sums(value, self.mean_of_rows)
        return estimated_log_density(sums, self.noise, Wr, rr, self.Ls)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            draws = []
            for _ in range(shape.numel()):
                white = torch.randn([len(L) for L in self.Ls]).to(self.noise)
                draws.append(self.interpolated(rotated(white, self.Ls).reshape(-1)))
            f = torch.stack(draws).reshape(*shape, self.n)
            return self.mean_of_rows + f + self.noise.sqrt() * torch.randn_like(f)
