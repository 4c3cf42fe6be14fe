"""Target's compiled gradient of a logistic regression against that through Pyro's handlers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from side_by_side import alternate, show

import ppgp
from ppgp import models
from ppgp.density import Target


@pytest.mark.filterwarnings("ignore")
def test_compiled_gradient(benchmark: Any) -> None:
    data, _ = ppgp.load("breast_cancer").standardised(scale_y=False)
    model = models.LogisticRegression()
    target = Target(model, data)
    z = target.start(seed=1, spread=0.5)
    initial, potential, _, _ = initialize_model(model.model, (data.X, data.y), {"total": data.n})

    def eager() -> tuple[torch.Tensor, ...]:
        point = z.clone().requires_grad_(True)
        parts = {name: s.of(point) for name, s in target.slices.items()}
        return torch.autograd.grad(potential(parts), point)

    assert set(initial) == set(target.slices)
    assert torch.allclose(target.value_and_grad(z)[1], -eager()[0])
    work = {"ppgp": lambda: target.value_and_grad(z), "Pyro, poutine eager": eager}
    ratio = show(
        "logistic regression, 31 dimensions, value and gradient",
        alternate(work, rounds=15, repeat=200),
        "us",
        1e6,
    )
    benchmark.extra_info["ratio"] = ratio
    benchmark(work["ppgp"])
    assert ratio <= 0.25
