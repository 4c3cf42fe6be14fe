"""The sums over rows by which interpolation from a grid enters a Gaussian density.

They are computed once: G = W'W, W'y and the others, in chunks of rows. Stanton, Maddox, Delbridge &
Wilson (2021), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .cubic_interpolation import Axis, interpolation

CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class GridStatistics:
    """Sums over rows of interpolation weights W [n, m] and of targets y.

    Attributes:
        G: W'W [m, m].
        Wy: W'y [m].
        W1: the sums of the columns of W [m].
        y: the sum of y.
        yy: y'y.
        n: the number of rows.
    """

    G: Tensor
    Wy: Tensor
    W1: Tensor
    y: Tensor
    yy: Tensor
    n: int

    def __add__(self, other: GridStatistics) -> GridStatistics:
        """Return the sums over the rows of both."""
        G, n = self.G + other.G, self.n + other.n
        Wy, W1 = self.Wy + other.Wy, self.W1 + other.W1
        return GridStatistics(G, Wy, W1, self.y + other.y, self.yy + other.yy, n)

    def about(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return W'r [m] and r'r for r = y - mean."""
        square = self.yy - 2 * mean * self.y + self.n * mean.square()
        return self.Wy - mean * self.W1, square


def statistics(X: Tensor, y: Tensor, axes: Sequence[Axis]) -> GridStatistics:
    """Return the sums over the rows of X [n, d] and y [n]; the axes are those of the grid."""
    m = math.prod(axis.nodes for axis in axes)
    near = 4 ** len(axes)
    G, sums = np.zeros((m, m)), np.zeros((2, m))
    width = max(1, CHUNK_BYTES // (16 * near))
    for row in range(0, len(X), width):
        at, weights = interpolation(X[row : row + width].detach(), axes)
        nodes = at.cpu().numpy()
        W = weights.double().cpu().numpy()
        target = y[row : row + width].detach().double().cpu().numpy()
        for k, factor in enumerate((target, np.ones_like(target))):
            sums[k] += np.bincount(nodes.ravel(), (W * factor[:, None]).ravel(), m)
        _add_products(G, nodes, W)
    numbers = y.detach().double()
    G_sum, both = torch.from_numpy(G).to(X), torch.from_numpy(sums).to(X)
    return GridStatistics(
        G_sum, both[0], both[1], numbers.sum().to(X), numbers.square().sum().to(X), len(X)
    )


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
        at: the nodes that each row reads, [n, 4^d].
        weights: their weights, [n, 4^d].
        y: the targets [n].
        nodes: the number of nodes.
    """
    sums: Any = _WeightSums.apply(weights, at, y, nodes)
    G, Wy, W1 = sums
    return GridStatistics(G, Wy, W1, y.sum(), y.square().sum(), len(y))


def _add_products(G: np.ndarray, nodes: np.ndarray, W: np.ndarray) -> None:
    """Add W'W to G, one matrix product per cell: its rows read the same nodes.

    Args:
        G: [m, m].
        nodes: the nodes that each row reads [n, 4^d], the first of which tells the cell.
        W: the weights [n, 4^d].
    """
    order = np.argsort(nodes[:, 0], kind="stable")
    nodes, W = nodes[order], W[order]
    starts = np.flatnonzero(np.diff(nodes[:, 0], prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(W)], strict=True):
        rows = W[start:stop]
        G[np.ix_(nodes[start], nodes[start])] += rows.T @ rows
