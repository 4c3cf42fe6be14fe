"""Mirror images of faces: rows that they add, and functions whose sign they change."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..data.dataset import Dataset


def mirrored(data: Dataset) -> Dataset:
    """Return the rows and their mirror images, whose angles have the opposite sign."""
    side = round(data.d**0.5)
    other = data.X.reshape(-1, side, side).flip(2).flatten(1)
    return Dataset(
        torch.cat([data.X, other]), torch.cat([data.y, -data.y]), target_name=data.target_name
    )


class Odd(nn.Module):
    """The odd part (g(x) - g(mirror image of x)) / 2 of a module g.

    It changes its sign under a mirror, as the angle does.

    Args:
        module: The module g of images [n, side^2].
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the odd part at images [n, side^2]."""
        side = round(x.shape[-1] ** 0.5)
        other = x.reshape(-1, side, side).flip(2).flatten(1)
        return (self.module(x) - self.module(other)) / 2
