"""A search of StateSpaceGP starts at the scale of the function, not at that of its trend."""

from __future__ import annotations

import math

import pytest
import torch

import ppgp
from ppgp import Dataset, inference, priors
from ppgp.kernels import Linear, Matern
from ppgp.models import StateSpaceGP
from ppgp.models.markov.markov_process import MOST_ROWS, first_scales

N = 600
TIMES = torch.linspace(0.0, 30.0, N, dtype=torch.float64)[:, None]
ERRORS = torch.randn(N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
SEASONS = 0.2 * TIMES[:, 0] + torch.sin(2 * math.pi * TIMES[:, 0]) + 0.1 * ERRORS
DATA = Dataset(TIMES, SEASONS)


def fitted(recipe: StateSpaceGP, data: Dataset = DATA) -> ppgp.Posterior:
    return ppgp.fit(recipe, data, inference.MAP(), progress=False)


def test_a_season_is_not_taken_for_noise() -> None:
    posterior = fitted(StateSpaceGP(Matern(2.5)))
    noise = float(posterior.draws_in("data")["noise"])
    error = 0.1**2 * math.sqrt(2 / N)  # of a variance estimated from N errors
    assert abs(noise - 0.1**2) < 6 * error  # the process takes a part of the errors
    z = torch.log(torch.tensor([1.0, 1.0, 0.1], dtype=torch.float64))  # as long as the data
    how = inference.MAP()
    trend = ppgp.fit(StateSpaceGP(Matern(2.5)), DATA, how, init=z, progress=False)
    assert posterior.stats["log_density"] > trend.stats["log_density"] + 100


def test_a_slow_function_keeps_its_long_lengthscale() -> None:
    slow = Dataset(TIMES, torch.sin(TIMES[:, 0] / 8) + 0.1 * ERRORS)
    first = first_scales(StateSpaceGP(), slow, {})
    assert float(first["kernel.lengthscale"]) >= 0.3 * float(TIMES.std())
    assert float(fitted(StateSpaceGP(Matern()), slow).draws_in("data")["kernel.lengthscale"]) > 3


@pytest.mark.parametrize(
    "recipe",
    [StateSpaceGP(Linear()), StateSpaceGP(Matern(lengthscale=0.3), noise=0.01)],
    ids=["no lengthscale", "fixed"],
)
def test_there_is_nothing_to_compare_without_a_free_lengthscale(recipe: StateSpaceGP) -> None:
    assert first_scales(recipe, DATA, {}) == {}


def test_known_noise_and_a_prior_count() -> None:
    exact = Dataset(TIMES, SEASONS, noise_sd=torch.full((N,), 0.1, dtype=torch.float64))
    first = first_scales(StateSpaceGP(noise=0.0), exact, {})
    assert set(first) == {"kernel.lengthscale"}
    sure = StateSpaceGP(Matern(lengthscale=priors.LogNormal(math.log(9.0), 0.001)))
    assert float(first_scales(sure, DATA, {})["kernel.lengthscale"]) > 5


def test_of_many_rows_successive_ones_tell() -> None:
    n = 4 * MOST_ROWS
    times = torch.linspace(0.0, 300.0, n, dtype=torch.float64)[torch.randperm(n)]
    data = Dataset(times[:, None], torch.sin(2 * math.pi * times))
    first = first_scales(StateSpaceGP(), data, {})
    assert float(first["kernel.lengthscale"]) <= 0.03 * float(times.std())
