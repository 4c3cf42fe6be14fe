"""Data and likelihoods for the tests of stochastic variational GPs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ppgp import kernels, likelihoods
from ppgp.data import Dataset

F64 = torch.float64
KERNEL = kernels.ARD(kernels.RBF())
LIKELIHOODS = {
    "gaussian": likelihoods.Gaussian(0.1),
    "student_t": likelihoods.StudentT(4.0, 0.3),
    "bernoulli": likelihoods.Bernoulli(),
    "probit": likelihoods.Bernoulli("probit"),
    "poisson": likelihoods.Poisson(),
    "categorical": likelihoods.Categorical(),
}


def number(x: Any) -> Tensor:
    """Return a float64 tensor."""
    return torch.tensor(x, dtype=F64)


def rows(n: int = 40, kind: str = "gaussian", seed: int = 0) -> Dataset:
    """Return rows of a wave with a slope, whose y suits a likelihood."""
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=g, dtype=F64)
    f = torch.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    noise = torch.randn(n, generator=g, dtype=F64)
    if kind in ("bernoulli", "probit"):
        return Dataset(X, (f + 0.5 * noise > 0).to(F64))
    if kind == "categorical":
        return Dataset(X, (f > -0.4).to(F64) + (f > 0.5))
    if kind == "poisson":
        return Dataset(X, torch.poisson(f.exp(), generator=g))
    return Dataset(X, f + 0.3 * noise)
