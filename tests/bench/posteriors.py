"""Four posteriors on which samplers and guides are timed.

``POSTERIORS`` maps each name to a function of the data folder that returns the model and the data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import eight_schools
import numpy as np
import torch

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


def schools(folder: Path) -> tuple[Any, Any]:
    """Rubin (1981), non-centred, 10 dimensions."""
    return eight_schools.schools, eight_schools.SCHOOLS


POSTERIORS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "logistic": logistic,
    "credit": credit,
    "gp": gp,
    "schools": schools,
}
