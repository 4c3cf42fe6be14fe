"""Layers of the networks of this library, and their initial weights.

Features of a deep kernel are bounded: each lies within 2 / sqrt(out) of 0, so that two rows are at
most 4 apart, whatever the number of features. A network of free scale could undo any lengthscale by
growing its weights. Within a ball of radius 2, a lengthscale of 1, the centre of the default prior,
lies between "all rows are alike" and "no two rows are alike". Standardising the features over the
current rows would make the covariance of two rows depend on the other rows, and the kernel would
no longer be a function of two points.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

RADIUS = 2.0


class Bounded(nn.Module):
    """x [n, q] -> RADIUS / sqrt(q) tanh(x), within a ball; this module's docstring says why."""

    def forward(self, x: Tensor) -> Tensor:
        return RADIUS / math.sqrt(x.shape[-1]) * torch.tanh(x)


class InBlocks(nn.Sequential):
    """Layers that are applied to blocks of rows, except in training.

    The values between two layers of convolution do not fit into the cache for all rows at once,
    which is several times slower.

    Args:
        *layers: The layers in order.
        rows: Rows per block; None for all.
    """

    def __init__(self, *layers: Any, rows: int | None = None) -> None:
        super().__init__(*layers)
        self.rows = rows

    def forward(self, input: Tensor) -> Tensor:
        if self.training or self.rows is None or len(input) <= self.rows:
            return super().forward(input)
        return torch.cat([super(InBlocks, self).forward(block) for block in input.split(self.rows)])


def bounds(bounded: bool) -> list[nn.Module]:
    """Return the layer that bounds features, or no layer."""
    return [Bounded()] if bounded else []


def initialised(module: nn.Module) -> nn.Module:
    """Initialise weights by N(0, gain / fan in) and biases by 0.

    The gain of the last layer is 1, so that few features start where tanh is flat.
    """
    layers = [m for m in module.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for layer in layers:
        nonlinearity = "linear" if layer is layers[-1] else "relu"
        nn.init.kaiming_normal_(layer.weight, nonlinearity=nonlinearity)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return module
