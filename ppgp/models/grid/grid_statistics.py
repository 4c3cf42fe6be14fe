"""The sums over rows by which interpolation from a grid enters a Gaussian density.

They are computed once: G = W'W, W'y and the others, in chunks of rows. Stanton, Maddox, Delbridge &
Wilson (2021), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...runtime.team import Team
from .cubic_interpolation import Axis, interpolation

CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class GridStatistics:
    """Sums over rows of interpolation weights W [n, m] and of targets z = y - origin.

    Attributes:
        G: W'W [m, m].
        Wz: W'z [m].
        W1: The sums of the columns of W [m].
        z: The sum of z.
        zz: Z'z.
        origin: A number near y [], so that the sums about a mean lose no digits.
        n: The number of rows.
    """

    G: Tensor
    Wz: Tensor
    W1: Tensor
    z: Tensor
    zz: Tensor
    origin: Tensor
    n: int

    def __add__(self, other: GridStatistics) -> GridStatistics:
        """Return the sums over the rows of both, about the origin of these."""
        other = other.moved_to(self.origin)
        return GridStatistics(
            self.G + other.G,
            self.Wz + other.Wz,
            self.W1 + other.W1,
            self.z + other.z,
            self.zz + other.zz,
            self.origin,
            self.n + other.n,
        )

    def about(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return W'r [m] and r'r for r = y - mean."""
        return sums_about(mean - self.origin, self.Wz, self.W1, self.z, self.zz, self.n)

    def moved_to(self, origin: Tensor) -> GridStatistics:
        """Return the sums over the same rows about another origin."""
        shift = origin - self.origin
        Wz, z, zz = moved(shift, self.Wz, self.W1, self.z, self.zz, self.n)
        return replace(self, Wz=Wz, z=z, zz=zz, origin=origin)

    def over_ranks(self, team: Team) -> GridStatistics:
        """Return the sums over the rows of all ranks of a team, about the mean of all targets."""
        if team.alone:
            return self
        n, origin = count_and_mean(self.n, self.origin, team)
        own = self.moved_to(origin)
        total = team.differentiable_sums(own.G, own.Wz, own.W1, own.z, own.zz)
        return GridStatistics(*total, origin=origin, n=n)


def count_and_mean(n: int, mean: Tensor, team: Team) -> tuple[int, Tensor]:
    """Return how many rows all ranks have, and the mean [] over them, from those of this rank."""
    own = torch.tensor([n, n * float(mean)], dtype=torch.float64)
    count, total = team.sum(own).tolist()
    return round(count), mean.new_tensor(total / count)


def sums_about(
    mean: Tensor, Wz: Tensor, W1: Tensor, z: Tensor, zz: Tensor, n: int
) -> tuple[Tensor, Tensor]:
    """Return W'r [m] and r'r for r = z - mean, from the sums of ``GridStatistics``."""
    return Wz - mean * W1, zz - 2 * mean * z + n * mean.square()


def moved(
    shift: Tensor, Wz: Tensor, W1: Tensor, z: Tensor, zz: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return W'z [m], z and z'z about an origin that is larger by ``shift``."""
    Wr, rr = sums_about(shift, Wz, W1, z, zz, n)
    return Wr, z - n * shift, rr


def spread(r: Tensor, at: Tensor, weights: Tensor, nodes: int) -> Tensor:
    """Return W'r [nodes] for values r [n] of the rows.

    Args:
        r: The values [n].
        at: The nodes that each row reads, [n, 4^d].
        weights: Their weights, [n, 4^d].
        nodes: The number of nodes.
    """
    return r.new_zeros(nodes).index_add(0, at.flatten(), (weights * r[:, None]).flatten())


def about_origin(y: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return y [n] less its mean in double precision, and that mean [] in the dtype of ``like``."""
    numbers = y.double()
    origin = numbers.mean().to(like)
    return numbers - origin.double(), origin


def statistics(X: Tensor, y: Tensor, axes: Sequence[Axis]) -> GridStatistics:
    """Return the sums over the rows of X [n, d] and y [n]; the axes are those of the grid."""
    m = math.prod(axis.nodes for axis in axes)
    near = 4 ** len(axes)
    G, sums = np.zeros((m, m)), np.zeros((2, m))
    width = max(1, CHUNK_BYTES // (16 * near))
    z, origin = about_origin(y.detach(), X)
    for row in range(0, len(X), width):
        at, weights = interpolation(X[row : row + width].detach(), axes)
        nodes = at.cpu().numpy()
        W = weights.double().cpu().numpy()
        target = z[row : row + width].cpu().numpy()
        for k, factor in enumerate((target, np.ones_like(target))):
            sums[k] += np.bincount(nodes.ravel(), (W * factor[:, None]).ravel(), m)
        _add_products(G, nodes, W)
    G_sum, both = torch.from_numpy(G).to(X), torch.from_numpy(sums).to(X)
    total, square = z.sum().to(X), z.square().sum().to(X)
    return GridStatistics(G_sum, both[0], both[1], total, square, origin, len(X))


class _WeightSums(torch.autograd.Function):
    """W'W, W'y and W'1 of sparse weights, with their gradient in the weights."""

    @staticmethod
    def forward(weights: Any, at: Any, y: Any, m: Any) -> Any:
        pairs = (at[:, :, None] * m + at[:, None]).flatten()
        products = (weights[:, :, None] * weights[:, None]).flatten()
        G = weights.new_zeros(m * m).index_add(0, pairs, products).reshape(m, m)
        nodes, zero = at.flatten(), weights.new_zeros(m)
        Wy = zero.index_add(0, nodes, (weights * y[:, None]).flatten())
        return G, Wy, zero.index_add(0, nodes, weights.flatten())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        weights, at, y = ctx.saved_tensors
        of_G, of_Wy, of_W1 = grad_outputs
        both = of_G + of_G.mT
        slopes = (both[at[:, :, None], at[:, None]] @ weights[:, :, None])[:, :, 0]
        return slopes + of_Wy[at] * y[:, None] + of_W1[at], None, None, None


def differentiable_statistics(at: Tensor, weights: Tensor, y: Tensor, nodes: int) -> GridStatistics:
    """Return the sums over rows as functions of the weights, which depend on a network.

    Args:
        at: The nodes that each row reads, [n, 4^d].
        weights: Their weights, [n, 4^d].
        y: The targets [n].
        nodes: The number of nodes.
    """
    origin = y.detach().mean()
    z = y - origin
    sums: Any = _WeightSums.apply(weights, at, z, nodes)
    G, Wz, W1 = sums
    return GridStatistics(G, Wz, W1, z.sum(), z.square().sum(), origin, len(y))


def _add_products(G: np.ndarray, nodes: np.ndarray, W: np.ndarray) -> None:
    """Add W'W to G, one matrix product per cell: its rows read the same nodes.

    Args:
        G: [m, m].
        nodes: The nodes that each row reads [n, 4^d], the first of which tells the cell.
        W: The weights [n, 4^d].
    """
    order = np.argsort(nodes[:, 0], kind="stable")
    nodes, W = nodes[order], W[order]
    starts = np.flatnonzero(np.diff(nodes[:, 0], prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(W)], strict=True):
        rows = W[start:stop]
        G[np.ix_(nodes[start], nodes[start])] += rows.T @ rows
