"""Simulation-based calibration: over draws of truth and data from the model, ranks of the truth among the draws are uniform."""

from __future__ import annotations

import pyro
import pytest
import torch
from scipy.stats import chisquare

from ppgp import inference, models
from ppgp.data import Dataset
from ppgp.prediction import seeded
from ppgp.target import Target

SIMULATIONS = 60
BINS = 5
KEPT = 19  # draws, so that a rank takes one of 20 values


@pytest.mark.slow
def test_ranks_of_nuts_on_a_linear_model_are_uniform() -> None:
    """Talts et al. (2018): chi-square over five bins, one test a site."""
    model = models.LinearRegression()
    how = inference.NUTS(draws=8 * KEPT, warmup=200, chains=1)
    ranks: dict[str, list[int]] = {"weight": [], "bias": [], "noise": []}
    for simulation in range(SIMULATIONS):
        generator = torch.Generator().manual_seed(simulation)
        X = torch.randn(12, 1, generator=generator, dtype=torch.float64)
        with seeded(simulation):
            nodes = pyro.poutine.trace(model.model).get_trace(X).nodes
        posterior = how(Target(model, Dataset(X, nodes["y"]["value"])), seed=simulation)
        for name, found in ranks.items():
            thinned = posterior.draws[name][0, ::8].flatten()
            found.append(int((thinned < nodes[name]["value"]).sum()))
    for name, found in ranks.items():
        counts = torch.bincount(torch.tensor(found) * BINS // (KEPT + 1), minlength=BINS).numpy()
        assert chisquare(counts).pvalue > 0.001, name
