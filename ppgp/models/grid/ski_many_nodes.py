"""SKI with more nodes than dense algebra takes: the parts that need a product kernel."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from ...data.dataset import Dataset
from ...kernels import Kernel
from ...numerics.cholesky import inducing_root
from ...priors import under
from ...runtime.result_cache import ResultCache
from ...runtime.team import ALONE, Team
from ..sites import Theta
from . import ski_grid
from .cubic_interpolation import Axis, interpolation
from .grid_statistics import about_origin, count_and_mean, moved, spread, statistics, sums_about
from .many_nodes import Estimate, GridSums, ManyNodes, Sparse, estimate, probes_of
from .many_nodes_density import ManyNodesMarginal
from .product_kernels import covariances
from .structured_gp import StructuredGP

ROWS = 20_000  # whose weights are held at once
LEFT = 1e-6  # share of a right-hand side that a variance may leave
SOLVES = 64  # rows of predictions that are solved for at once


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
    for row in range(0, len(X), ROWS):
        at, weights = interpolation(X[row : row + ROWS].detach(), axes)
        ends = np.arange(0, near * len(at) + 1, near)
        entries = weights.double().cpu().numpy().ravel()
        W = csr_matrix((entries, at.cpu().numpy().ravel(), ends), shape=(len(at), m))
        G = G + W.T @ W
        targets = z[row : row + ROWS].cpu().numpy()
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
        after[part] = M.left_at(R, LEFT)
    return before, after


def from_nodes(M: ManyNodes, at: Tensor, weights: Tensor) -> Tensor:
    """Return U'L'W' [m, t] for the weights of t rows."""
    m = math.prod(len(U) for U in M.Us)
    W = weights.new_zeros(len(at), m).scatter_add(1, at, weights)
    return M.back(W.mT)


class EstimatedDensity(StructuredGP):
    """The part of SKI for many nodes: an estimated density, and predictions by solves.

    Attributes:
        kernel: A product over the columns.
        seed: Seed of the probes.
    """

    kernel: Kernel
    seed: int

    def mean_of_rows(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the mean at rows of X, [n], or [] if it is constant, for one draw."""
        mean = self.mean_at(theta, X)
        return mean if self.mean_function.varies else mean[0]

    @abstractmethod
    def _axes(self, X: Tensor) -> tuple[Axis, ...]:
        """Return the axes of the grid."""

    @abstractmethod
    def _all_noise(self, theta: Theta, kernel: Kernel, hyper: Theta, like: Tensor) -> Tensor:
        """Return the noise variance, with that of White, for one draw."""

    def _sums_of_many(
        self, X: Tensor, axes: tuple[Axis, ...], y: Tensor, team: Team = ALONE
    ) -> RowSums:
        """Return the same sums for many nodes, over the rows of all ranks."""
        kept: ResultCache = vars(self).setdefault("_kept_sums", ResultCache())

        def compute() -> tuple[Tensor, ...]:
            *parts, factors, n = row_sums(X, y, axes).over_ranks(team)
            return *parts, torch.tensor(n), *factors

        starts, columns, values, Wz, W1, total, square, origin, n, *factors = kept.get(
            ("many", axes, team.size), compute, {"X": X, "y": y}, not team.alone
        )
        each = tuple(factors)
        return RowSums(starts, columns, values, Wz, W1, total, square, origin, each, int(n))

    def _marginal_of_many(self, theta: Theta, X: Tensor, team: Team = ALONE) -> ManyNodesMarginal:
        """Return the distribution of y at X with an estimated density."""
        axes, hyper, n = self._axes(X), under("kernel", theta), len(X)
        noise = self._all_noise(theta, self.kernel, hyper, X)
        Ls = [inducing_root(K) for K in covariances(self.kernel, hyper, axes, X)]

        def sums(y: Tensor, mean: Tensor) -> tuple[GridSums, Tensor, Tensor]:
            kept = self._sums_of_many(X, axes, y, team)
            of_rows = kept.grid_sums(self.seed)
            if not mean.ndim:
                return of_rows, *kept.about(mean)
            r = y - mean
            Wr = spread(r, *interpolation(X, axes), len(kept.W1))
            Wr, rr = team.differentiable_sums(Wr, r.square().sum())
            return of_rows, Wr, rr

        def interpolated(f: Tensor) -> Tensor:
            at, weights = interpolation(X, axes)
            return (f[at] * weights).sum(1)

        mean = self.mean_of_rows(theta, X)
        return ManyNodesMarginal(mean, Ls, noise, n, sums, interpolated)

    def _estimated(self, theta: Theta, data: Dataset) -> Estimate | None:
        """Return the estimated density at one draw; None where it is exact."""
        if not ski_grid.many(self._axes(data.X)):
            return None
        marginal = self._marginal_of_many(theta, data.X, data.team)
        sums, Wr, rr = marginal.sums(data.y, marginal.mean_of_rows)
        return estimate(sums, marginal.noise, Wr, rr, marginal.Ls)

    def _posterior_of_many(self, theta: Theta, train: Dataset) -> tuple[Tensor, ...]:
        """Return the posterior mean [m] of f at the nodes, and the roots of K along the axes."""
        marginal = self._marginal_of_many(theta, train.X, train.team)
        sums, Wr, _ = marginal.sums(train.y, marginal.mean_of_rows)
        M = ManyNodes.at(sums, marginal.noise, marginal.Ls)
        mean = M.turned(M.solved(M.back(Wr[:, None])), M.Ps)[:, 0] / marginal.noise
        return mean, *marginal.Ls

    def _at_nodes(self, theta: Theta, train: Dataset, factor: tuple[Tensor, ...]) -> ManyNodes:
        """Return the parts of the posterior of f at many nodes."""
        noise = self._all_noise(theta, self.kernel, under("kernel", theta), train.X)
        sums = self._sums_of_many(train.X, self._axes(train.X), train.y, train.team)
        return ManyNodes.at(sums.grid_sums(self.seed), noise, factor[1:])
