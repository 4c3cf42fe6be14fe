"""SVGP takes mini-batches by itself where there are many rows."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import ppgp
from ppgp import Dataset, inference, models
from ppgp.inference.variational import svi

F64 = torch.float64


def fitted(n: int, **options: Any) -> ppgp.Posterior:
    X = torch.linspace(-1.0, 1.0, n, dtype=F64)[:, None]
    data = Dataset(X, torch.sin(3 * X[:, 0]))
    how = inference.SVI(steps=3, draws=5, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few steps
        return ppgp.fit(models.SVGP(inducing=5), data, how, progress=False)


@pytest.mark.usefixtures("shared_graphs")
def test_many_rows_are_taken_in_mini_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit is that of the same batch size given by the user; the limit itself is not past it."""
    monkeypatch.setattr(svi, "ROWS_AT_ONCE", 60)
    monkeypatch.setattr(svi, "OWN_BATCH", 20)
    own, given = fitted(61), fitted(61, batch_size=20)
    assert own.stats["batch_size"] == 20
    assert all(torch.equal(v, given.params[name]) for name, v in own.params.items())
    assert "batch_size" not in fitted(60).stats
    assert fitted(61, batch_size=61).stats["batch_size"] == 61


def test_the_limits_are_those_of_the_docstring() -> None:
    assert f"{svi.ROWS_AT_ONCE:,} rows" in str(inference.SVI.__doc__)
    assert f"{svi.OWN_BATCH:,} for a model" in str(inference.SVI.__doc__)
