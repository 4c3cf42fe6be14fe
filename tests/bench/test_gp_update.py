"""An update of an exact GP by ten rows, beside conditioning on all rows at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from side_by_side import alternate, show

import ppgp
from ppgp import Dataset, inference, kernels, models

N, NEW = 4000, 10
MOST = 0.4  # of the time of conditioning on all rows: O(n^2 k) beside O(n^3)


@pytest.mark.benchmark(group="gp update")
def test_an_update_costs_a_part_of_conditioning_on_all_rows(benchmark: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(N + NEW, 2, generator=generator, dtype=torch.float64)
    y = X.sin().sum(1)
    model = models.GP(kernels.RBF(1.0, 0.3), 0.01, 0.0)
    fit = ppgp.fit(model, Dataset(X[:N], y[:N]), inference.MAP(), standardise=False)
    fit.predict(X[:5])
    whole = Dataset(X, y)
    work = {
        "ppgp": lambda: fit.update(X[N:], y[N:]).predict(X[:5]).mean,
        "all rows at once": lambda: replace(fit, data=whole).predict(X[:5]).mean,
    }
    assert torch.allclose(work["ppgp"](), work["all rows at once"](), rtol=1e-8, atol=1e-8)
    benchmark.pedantic(work["ppgp"], rounds=3, iterations=1)
    times = alternate(work, rounds=3)
    ratio = show(f"{NEW} rows after {N:,}", times, "ms", 1e3)
    benchmark.extra_info["ratio"] = ratio
    assert ratio <= MOST
