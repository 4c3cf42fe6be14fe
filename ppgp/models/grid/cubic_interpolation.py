"""Cubic convolution on a regular grid: the weights of 4^d nodes around each row. Keys (1981)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Axis(NamedTuple):
    """Equally spaced nodes in one column.

    Attributes:
        first: The first node.
        spacing: The distance between neighbours.
        nodes: How many nodes there are.
    """

    first: float
    spacing: float
    nodes: int

    @property
    def ends(self) -> tuple[float, float]:
        """The interval in which a row has two nodes on either side."""
        return self.first + self.spacing, self.first + (self.nodes - 2) * self.spacing

    def places(self, like: Tensor) -> Tensor:
        """Return the nodes, [nodes]."""
        number = torch.arange(self.nodes, dtype=like.dtype, device=like.device)
        return self.first + self.spacing * number


def nodes_of(axes: Sequence[Axis], like: Tensor) -> Tensor:
    """Return all nodes of a grid, [m, d], the last column moving fastest."""
    return torch.cartesian_prod(*(axis.places(like) for axis in axes)).reshape(-1, len(axes))


def cubic_weights(t: Tensor) -> Tensor:
    """Return the weights of the nodes at -1, 0, 1 and 2 for places t in [0, 1], [..., 4].

    Keys (1981), equation 15, with a = -1/2.
    """
    t2 = t.square()
    t3 = t2 * t
    four = (2 * t2 - t3 - t, 3 * t3 - 5 * t2 + 2, 4 * t2 - 3 * t3 + t, t3 - t2)
    return 0.5 * torch.stack(four, -1)


def interpolation(X: Tensor, axes: Sequence[Axis]) -> tuple[Tensor, Tensor]:
    """Return which nodes each row reads, and their weights, both [n, 4^d].

    Rows outside of the ends of an axis read its outermost nodes; callers refuse them.

    Args:
        X: Rows [n, d].
        axes: The nodes of each column.
    """
    at = torch.zeros(len(X), 1, dtype=torch.long, device=X.device)
    weights = torch.ones(len(X), 1, dtype=X.dtype, device=X.device)
    offsets = torch.arange(-1, 3, device=X.device)
    for k, axis in enumerate(axes):
        place = (X[:, k] - axis.first) / axis.spacing
        cell = place.detach().floor().clamp(1, axis.nodes - 3).long()
        own = cubic_weights(place - cell)
        at = (at[:, :, None] * axis.nodes + (cell[:, None] + offsets)[:, None]).flatten(1)
        weights = (weights[:, :, None] * own[:, None]).flatten(1)
    return at, weights
