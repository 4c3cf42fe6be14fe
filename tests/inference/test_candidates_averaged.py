"""The candidates of a series, averaged by their evidence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ppgp
from ppgp import inference, kernels, models
from ppgp.errors import DataError, NotApplicable

RNG = np.random.default_rng(1)
TIMES = np.arange(42.0)
VALUES = 0.1 * TIMES + 2 * np.sin(2 * np.pi * TIMES / 7) + 0.3 * RNG.normal(size=42)
DATA = ppgp.Dataset(TIMES[:, None], VALUES)
AHEAD = np.arange(42.0, 49.0)[:, None]


def test_the_average_holds_a_fit_of_each_candidate_with_its_evidence() -> None:
    recipe = models.StateSpaceGP()
    average = ppgp.fit_candidates(recipe, DATA)
    fits = [
        ppgp.fit(one, DATA, inference.MAP(starts=1), progress=False)
        for one in recipe.candidates(DATA)
    ]
    logs = torch.tensor([each.log_evidence for each in fits], dtype=torch.float64)
    assert torch.allclose(average.weights, logs.softmax(0), atol=1e-8)
    best = ppgp.fit(recipe, DATA, inference.MAP(), progress=False)
    assert average[average.best].model == best.model
    assert all(" + " in name for name in average.names)
    forecast = average.predict(AHEAD)
    truth = 0.1 * AHEAD[:, 0] + 2 * np.sin(2 * np.pi * AHEAD[:, 0] / 7)
    error = np.sqrt(np.mean((forecast.mean.numpy() - truth) ** 2))
    assert error < 0.6 * np.sqrt(np.mean((VALUES[-1] - truth) ** 2))
    assert "season" in average.components(AHEAD)


def test_another_method_fits_those_whose_weight_counts() -> None:
    average = ppgp.fit_candidates(models.StateSpaceGP(), DATA, inference.Laplace(draws=8))
    assert {type(each.how).__name__ for each in average.posteriors.values()} == {"Laplace"}
    assert float(average.weights.sum()) == pytest.approx(1.0)
    assert {each.shape for each in average.posteriors.values()} == {(1, 8)}
    assert len(average.predict(AHEAD)) == 7


def test_forecasts_of_candidates_are_calibrated_over_past_origins() -> None:
    found = ppgp.cross_calibrate(models.StateSpaceGP(), DATA, horizon=3, origins=4)
    assert isinstance(found.posterior, ppgp.Average)
    assert found.scores().shape == (4, 3)
    assert found(AHEAD[:3], 0.8).guarantee.startswith("heuristic: past origins of one series")


def test_a_model_with_a_kernel_and_rows_without_a_span_are_refused() -> None:
    with pytest.raises(NotApplicable):
        ppgp.fit_candidates(models.StateSpaceGP(kernels.Matern(1.5)), DATA)
    with pytest.raises(NotApplicable, match="a model without a kernel, which has candidates"):
        ppgp.fit_candidates(models.LinearRegression(), DATA)
    flat = ppgp.Dataset(TIMES[:, None], np.ones(42))
    with pytest.raises(DataError, match="rows of a series that differ in time and y"):
        ppgp.fit_candidates(models.StateSpaceGP(), flat)
