"""Every model with its defaults, and data for it that are drawn from its prior predictive."""

from __future__ import annotations

import pyro
import torch

from ppgp import likelihoods, models, networks
from ppgp.data import Dataset
from ppgp.models import Model
from ppgp.numerics.seeding import seeded

#: models whose defaults need something from the data, are larger than a test needs, or have an
#: approximate density
SPELT_OUT: dict[str, Model] = {
    "LatentGP": models.LatentGP(likelihood=likelihoods.Gaussian()),
    "NeuralRegression": models.NeuralRegression(networks.MLP((3,), dropout=0.0, activation="tanh")),
    "SoftmaxRegression": models.SoftmaxRegression(classes=3),
}
MODELS: list[Model] = [
    SPELT_OUT.get(n) or getattr(models, n)()
    for n in models.__all__
    if n not in ("Model", "Program")
]


def data_for(model: Model, n: int = 24, seed: int = 0) -> Dataset:
    """Return y drawn from the prior predictive of the model."""
    with seeded(seed), pyro.get_param_store().scope():
        X = torch.randn(n, 2, dtype=torch.float64)
        return Dataset(X, model.model(X))
