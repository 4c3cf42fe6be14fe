"""A table with units for the tests of numbers and priors in data units."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ppgp
from ppgp import Dataset
from ppgp.models import Model

F64 = torch.float64
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def table(n: int = 30) -> Dataset:
    """Return two columns with very different sds and means, and y in other units."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 2, generator=generator, dtype=F64) * torch.tensor(
        [3.0, 40.0], dtype=F64
    ) + torch.tensor([20.0, -70.0])
    noise = torch.randn(n, generator=generator, dtype=F64)
    return Dataset(X, 50 + 8 * torch.sin(X[:, 0]) + 0.2 * X[:, 1] + noise)


DATA = table()
NEW = DATA.X[:6] + 0.3
Z = DATA.X[::5] + 0.1
LABELS = Dataset(DATA.X, (DATA.y > 50).double())
CLASSES = Dataset(DATA.X, (DATA.y > 45).double() + (DATA.y > 52).double())


def predictions(model: Model, data: Dataset, how: Any, **options: Any) -> list[Any]:
    """Return the predictions with and without standardisation."""
    return [
        ppgp.fit(model, data, how, progress=False, standardise=standardise, **options).predict(NEW)
        for standardise in (True, False)
    ]


def same(one: Any, two: Any, rtol: float = 1e-6) -> None:
    """Compare the probabilities of two predictions, or their means and sds."""
    if hasattr(one.distribution, "logits"):
        torch.testing.assert_close(one.probabilities, two.probabilities, rtol=rtol, atol=rtol)
        return
    torch.testing.assert_close(one.mean, two.mean, rtol=rtol, atol=rtol)
    torch.testing.assert_close(one.std, two.std, rtol=rtol, atol=rtol)
