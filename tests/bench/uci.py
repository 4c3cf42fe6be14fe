"""Published splits of the UCI regression sets, or simulated rows of the same shape."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import torch

from ppgp.data import Dataset
from ppgp.experiments.published_splits import path_of, splits_of

SHAPES = {"concrete": (1030, 8), "energy": (768, 8), "kin8nm": (8192, 8)}
TEST_SHARE = 0.1


def is_published(folder: Path, name: str) -> bool:
    """Return whether the folder, or its folder ``uci``, holds the published set."""
    return path_of(folder, name) is not None


def split(folder: Path, name: str, number: int = 0) -> tuple[Dataset, Dataset]:
    """Return training and test rows, standardised by the training rows.

    Without the published set the rows are simulated, and a line of output says so.
    """
    path = path_of(folder, name)
    if path is None:
        print(f"\n{name}: simulated rows of its shape, {name}.npz is missing (docs/data.md)")
        rows, test = simulated(*SHAPES[name])
    else:
        _, rows, test = next(islice(splits_of(path, "all"), number, None))
    train, scaler = rows.standardised()
    return train, Dataset(scaler.inputs(test.X), (test.y - scaler.y_mean) / scaler.y_sd)


def simulated(n: int, d: int) -> tuple[Dataset, Dataset]:
    """Return 90 % training and 10 % test rows of a smooth function of d inputs under noise."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    f = torch.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * X[:, 3:].sum(1)
    y = f + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    n_test = round(TEST_SHARE * n)
    return Dataset(X[n_test:], y[n_test:]), Dataset(X[:n_test], y[:n_test])
