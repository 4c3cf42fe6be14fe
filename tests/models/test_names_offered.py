"""Tab completion of models: fields and methods for users, and no hooks of the library."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch

from ppgp import kernels, likelihoods, models
from ppgp.models import Model
from ppgp.models.base import FOR_USERS
from ppgp.models.program import Program

HOOKS = ("prepare", "in_units", "batch", "chunked", "relabel", "work", "sites_at", "law", "fit")
BUILT = [
    models.GP(),
    models.GLM(likelihoods.Poisson()),
    models.LinearRegression(),
    models.GaussianMixture(components=2),
    models.Kriging(kernels.Matern()),
    models.StateSpaceGP(),
    Program(print),
]


@pytest.mark.parametrize("model", BUILT, ids=lambda m: type(m).__name__)
def test_fields_and_methods_for_users_are_offered_and_hooks_are_not(model: Any) -> None:
    offered = {name for name in dir(model) if not name.startswith("_")}
    own = {f.name for f in fields(model)}
    assert {f.name for f in fields(model) if f.repr} <= offered
    assert {"model", "sites", "log_evidence", "predict"} <= offered
    assert offered <= own | set(FOR_USERS)
    assert not offered & set(HOOKS)
    assert "__repr__" in dir(model)


def test_hooks_are_callable_as_before() -> None:
    model = models.GP()
    assert not model.chunked(None)
    assert model.work(10, 2) > 0
    assert callable(model.prepare)


def test_methods_of_one_model_are_offered_there() -> None:
    assert "trend" in dir(models.Kriging(kernels.Matern()))
    assert "from_formula" in dir(models.GLM(likelihoods.Poisson()))
    assert "responsibilities" in dir(models.GaussianMixture(components=2))
    assert "trend" not in dir(models.GP())


def test_names_of_a_users_own_model_are_offered() -> None:
    @dataclass(frozen=True)
    class Own(Model):
        slope: float = 1.0

        def prepare(self, data: Any) -> Model:
            return self

        def half(self) -> float:
            return self.slope / 2

    offered = dir(Own())
    assert {"slope", "half"} <= set(offered)
    assert "prepare" not in offered  # a hook, which the library calls
    assert Own().half() == 0.5
    assert torch.is_tensor(Own().value({}, "slope", torch.zeros(1)))
