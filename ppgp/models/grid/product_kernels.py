"""Kernels that are products over the columns, and their covariances along the axes of a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import NotApplicable
from ...kernels import Kernel
from ..sites import Theta
from .cubic_interpolation import Axis

PAIRS = 24  # nodes on either side of the check of a product kernel
SAME = 1e-6  # share of the variance by which a product may differ


def covariances(kernel: Kernel, theta: Theta, axes: Sequence[Axis], like: Tensor) -> list[Tensor]:
    """Return the covariance along each axis; their Kronecker product is that of the nodes.

    The other columns are held at the middle of the grid, and its variance there counts once.
    """
    places = [axis.places(like) for axis in axes]
    middle = torch.stack([place[len(place) // 2] for place in places])
    Ks = []
    for k, place in enumerate(places):
        line = middle.repeat(len(place), 1)
        line[:, k] = place
        K = kernel.shared(theta, line)
        Ks.append(K if k == 0 else K / K[len(place) // 2, len(place) // 2])
    return Ks


def is_product(kernel: Kernel, theta: Theta, axes: Sequence[Axis], like: Tensor) -> bool:
    """Return whether the kernel is a product over the columns, at some pairs of nodes."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, PAIRS)
    codes = [
        torch.randint(0, axis.nodes, shape, generator=generator, device="cpu") for axis in axes
    ]
    one, other = torch.stack(
        [axis.places(like)[code.to(like.device)] for axis, code in zip(axes, codes, strict=True)],
        -1,
    )
    with torch.no_grad():
        Ks = covariances(kernel, theta, axes, like)
        product = torch.ones(PAIRS, PAIRS).to(like)
        for K, code in zip(Ks, codes, strict=True):
            product = product * K[code[0]][:, code[1]]
        whole = kernel(theta, one, other)
    return bool((product - whole).abs().max() <= SAME * Ks[0].diagonal().max())


def require_product(kernel: Kernel, theta: Theta, axes: Sequence[Axis], like: Tensor) -> None:
    """Raise NotApplicable for a kernel that is no product over the columns."""
    if not is_product(kernel, theta, axes, like):
        nodes = math.prod(axis.nodes for axis in axes)
        raise NotApplicable(
            "a kernel that is a product over the columns, such as RBF, for more than 5,000 nodes "
            "of SKI",
            f"another one and {nodes:,} nodes",
            "use RBF, a product of Subspace kernels, or a coarser grid",
        )
