"""Every model of the zoo with its defaults, and targets fit for it: y drawn from its own prior predictive."""

from __future__ import annotations

import pyro
import torch

from ppgp import models
from ppgp.data import Dataset
from ppgp.models import Model
from ppgp.numerics.seeding import seeded

#: members whose defaults leave something to the data
SPELT_OUT: dict[str, Model] = {"SoftmaxRegression": models.SoftmaxRegression(classes=3)}
MODELS: list[Model] = [
    SPELT_OUT.get(n) or getattr(models, n)()
    for n in models.__all__
    if n not in ("Model", "Program")
]


def data_for(model: Model, n: int = 24, seed: int = 0) -> Dataset:
    """y drawn from the model's own prior predictive."""
    with seeded(seed), pyro.get_param_store().scope():
        X = torch.randn(n, 2, dtype=torch.float64)
        return Dataset(X, model.model(X))
