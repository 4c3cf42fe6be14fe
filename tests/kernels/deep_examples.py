"""Data and networks for the tests of deep kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ppgp import Dataset
from ppgp.networks.networks import MLP

SMALL = MLP(hidden=(8,), out=3)
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def cliff(n: int, seed: int) -> Dataset:
    """Return data with a step along a diagonal, and a slope.

    A stationary kernel needs a short lengthscale everywhere to be steep at the step.
    """
    generator = torch.Generator().manual_seed(seed)
    X = 4 * torch.rand(n, 2, generator=generator, dtype=torch.float64) - 2
    noise = 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(X, torch.where(X.sum(1) > 0.3, 1.0, -1.0) + 0.2 * X[:, 0] + noise)


class Identity(nn.Module):
    """No weights: the features are the inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x
