"""Every model with its defaults, and data for it that are drawn from its prior predictive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyro
import pytest
import torch

from ppgp import kernels, likelihoods, models, networks
from ppgp.data import Dataset
from ppgp.models import Model
from ppgp.runtime.seeding import seeded

#: models whose defaults need something from the data, are larger than a test needs, or have an
#: approximate density
SPELT_OUT: dict[str, Model] = {
    "LatentGP": models.LatentGP(likelihood=likelihoods.Gaussian()),
    "LatentStateSpaceGP": models.LatentStateSpaceGP(kernels.Matern(0.5), likelihoods.Gaussian(0.2)),
    "LatentVecchia": models.LatentVecchia(likelihood=likelihoods.Gaussian()),
    "NeuralRegression": models.NeuralRegression(networks.MLP((3,), dropout=0.0, activation="tanh")),
    "SKI": models.SKI(grid=8, margin=0.1),
    "SoftmaxRegression": models.SoftmaxRegression(classes=3),
}
#: what ``GLM(groups=...)`` makes, which is no member of ``models.__all__``
GROUPED: list[Model] = [
    models.GLM(groups={"county": models.Varying("1 + 0")}),
    models.GLM(likelihoods.Poisson(), groups={"county": models.Varying("1")}),
]
MODELS: list[Model] = [
    *(
        SPELT_OUT.get(n) or getattr(models, n)()
        for n in models.__all__
        if n not in ("LinearMean", "Model", "Multi", "Program")
    ),
    *GROUPED,
]


def name_of(model: Model) -> str:
    """Return the name of the class, and of counts with groups also that of the likelihood."""
    name = type(model).__name__
    return f"{name}-Poisson" if model is GROUPED[1] else name


every_model = pytest.mark.parametrize("model", MODELS, ids=name_of)


def columns_for(model: Model, n: int) -> dict[str, Any]:
    """Return the columns beside X and y without which a table does not suit the model."""
    groups = getattr(model, "groups", None)
    if not groups:
        return {}
    return {"groups": {name: [f"level {i % 4}" for i in range(n)] for name in groups}}


def block_of(model: Model) -> int:
    """Return how many rows each block has, of which any number suit the model."""
    return 2 if isinstance(model, models.GridGP) else 1


def error_of(model: Model) -> float:
    """Return how far the density may be from the product of its predictions.

    Predictions of SKI have the variance of the kernel, whose interpolation from 8 nodes per column
    has another one.
    """
    return 3.0 if isinstance(model, models.SKI) else 1e-7


def inputs_for(model: Model, n: int) -> torch.Tensor:
    """Return inputs that suit the model: [n, 2], random or a complete grid, or times [n, 1]."""
    if isinstance(model, models.StateSpaceGP | models.LatentStateSpaceGP):
        return torch.randn(n, 1, dtype=torch.float64)
    if not isinstance(model, models.GridGP):
        return torch.randn(n, 2, dtype=torch.float64)
    levels = 1 + (n + 1) % 2
    axes = torch.randn(n // levels, dtype=torch.float64), torch.randn(levels, dtype=torch.float64)
    return torch.cartesian_prod(*axes)


def data_for(model: Model, n: int = 24, seed: int = 0) -> Dataset:
    """Return y drawn from the prior predictive of the model."""
    with seeded(seed), pyro.get_param_store().scope():
        X = inputs_for(model, n)
        columns = columns_for(model, n)
        if not columns:
            return Dataset(X, model.model(X))
        data = Dataset(X, torch.arange(n).to(X) % 5, **columns)
        return Dataset(X, program_of(model, data)(X), **columns)


def program_of(model: Model, data: Dataset) -> Callable[..., Any]:
    """Return the Pyro program of (X, y), which has the groups of the data, if there are any."""
    columns = data.for_prediction
    return partial(model.prepare(data).model, **columns) if columns else model.model
