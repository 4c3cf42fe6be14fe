"""Four posteriors on which samplers and guides are timed.

``POSTERIORS`` maps each name to a function of the data folder that returns the model and the data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import ppgp
from ppgp import kernels, models
from ppgp.data import Dataset

F64 = torch.float64


def logistic(folder: Path) -> tuple[Any, Any]:
    """Breast cancer, 31 dimensions."""
    return models.LogisticRegression(), ppgp.load("breast_cancer").standardised(scale_y=False)[0]


def credit(folder: Path) -> tuple[Any, Any]:
    """German credit, 25 dimensions; without the published set, simulated rows of its shape."""
    path = folder / "german_credit" / "german_credit.npz"
    if not path.is_file():
        print(f"\ncredit: simulated rows of its shape, {path.name} is missing (docs/data.md)")
        return models.LogisticRegression(), simulated_credit(1000, 24)
    raw = np.load(path)
    X = raw["X"].astype(float)
    return models.LogisticRegression(), Dataset((X - X.mean(0)) / X.std(0), raw["y"].astype(float))


def simulated_credit(n: int, d: int) -> Dataset:
    """Draw rows of a logistic regression with normal inputs and weights."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=generator, dtype=F64)
    weight = 0.4 * torch.randn(d, generator=generator, dtype=F64)
    probability = torch.sigmoid(X @ weight - 1.0)
    return Dataset(X, (torch.rand(n, generator=generator, dtype=F64) < probability).to(F64))


def gp(folder: Path) -> tuple[Any, Any]:
    """A Gaussian process of 200 rows: variance, two lengthscales, noise."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 2, generator=generator, dtype=F64)
    f = torch.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    y = f + 0.3 * torch.randn(200, generator=generator, dtype=F64)
    return models.GP(kernels.ARD(kernels.RBF())), Dataset(X, y).standardised()[0]


def schools_program(sigma: Tensor, y: Tensor | None = None) -> None:
    zero = torch.zeros((), dtype=sigma.dtype)
    mu = pyro.sample("mu", dist.Normal(zero, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(zero + 5.0))
    z = pyro.sample("z", dist.Normal(torch.zeros_like(sigma), 1.0).to_event(1))
    pyro.sample("y", dist.Normal(mu + tau * z, sigma).to_event(1), obs=y)


def schools(folder: Path) -> tuple[Any, Any]:
    """Rubin (1981), non-centred, 10 dimensions."""
    y = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
    sigma = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]
    return schools_program, {
        "sigma": torch.tensor(sigma, dtype=F64),
        "y": torch.tensor(y, dtype=F64),
    }


POSTERIORS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "logistic": logistic,
    "credit": credit,
    "gp": gp,
    "schools": schools,
}
