"""Data and hyperparameters for the tests of sparse regression."""

from __future__ import annotations

import torch
from torch import Tensor

from ppgp import kernels
from ppgp.data import Dataset

F64 = torch.float64
KERNEL = kernels.ARD(kernels.RBF())


def waves(n: int = 60, d: int = 2, seed: int = 0) -> Dataset:
    """Return rows whose y is a wave in the first column, with a slope in the last."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=F64)
    y = (
        torch.sin(2 * X[:, 0])
        + 0.3 * X[:, -1]
        + 0.2 * torch.randn(n, generator=generator, dtype=F64)
    )
    return Dataset(X, y - y.mean())


def thetas(draws: int = 4, d: int = 2) -> dict[str, Tensor]:
    """Return draws of the hyperparameters of ``KERNEL`` and of the noise."""
    generator = torch.Generator().manual_seed(1)

    def positive(*shape: int) -> Tensor:
        return (0.4 * torch.randn(*shape, generator=generator, dtype=F64)).exp()

    return {
        "kernel.variance": positive(draws),
        "kernel.lengthscale": positive(draws, d),
        "noise": 0.1 * positive(draws),
    }


def normal(y: Tensor, C: Tensor) -> Tensor:
    """Return the log density of N(0, C) at y."""
    return torch.distributions.MultivariateNormal(torch.zeros_like(y), C).log_prob(y)
