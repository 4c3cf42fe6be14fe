"""Intervals of forecasts, calibrated over past origins of one series."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp import conformal, inference, kernels, models
from ppgp.conformal.past_origins import GUARANTEE, OriginCalibrator
from ppgp.errors import DataError, NotApplicable, SettingError

RNG = np.random.default_rng(3)
N, HORIZON = 60, 5
TIMES = np.arange(float(N))
VALUES = np.cumsum(RNG.normal(size=N))
DATA = ppgp.Dataset(TIMES[:, None], VALUES)
AHEAD = np.arange(N, N + HORIZON, dtype=float)[:, None]
#: a random walk whose numbers are given, so that no fit differs from an update
WALK = models.StateSpaceGP(
    kernels.Matern(0.5, variance=400.0, lengthscale=400.0), noise=1e-4, mean=0.0
)
OPTIONS: dict[str, Any] = {"how": inference.MAP(), "standardise": False}


def calibrated(data: ppgp.Dataset = DATA, **options: Any) -> OriginCalibrator:
    """Return the calibrator of the walk."""
    return ppgp.cross_calibrate(WALK, data, **{**OPTIONS, "horizon": HORIZON, **options})


def test_scores_are_those_of_forecasts_from_the_rows_before_each_origin() -> None:
    """Each origin is forecast here by a fit of its own to the rows before it."""
    found = calibrated(origins=4)
    begins = [N - HORIZON * k for k in (4, 3, 2, 1)]
    expected = []
    for begin in begins:
        before = ppgp.Dataset(TIMES[:begin, None], VALUES[:begin])
        fit = ppgp.fit(WALK, before, progress=False, **OPTIONS)
        after = slice(begin, begin + HORIZON)
        prediction = fit.predict(TIMES[after, None])
        expected.append((torch.tensor(VALUES[after]) - prediction.mean).abs() / prediction.std)
    assert torch.allclose(found.scores(), torch.stack(expected), rtol=1e-6)
    assert repr(found) == "<OriginCalibrator Normalized(): 4 origins of 5 rows>"


def test_the_interval_has_the_ranked_score_in_units_of_the_forecast() -> None:
    found = calibrated(origins=4)
    region = found(AHEAD, level=0.8)
    scores = np.sort(found.scores().flatten().numpy())
    q = scores[int(np.ceil(21 * 0.8)) - 1]
    forecast = found.posterior.predict(AHEAD)
    assert torch.allclose(region.upper, forecast.mean + q * forecast.std)
    assert torch.allclose(region.lower, forecast.mean - q * forecast.std)
    assert region.guarantee == GUARANTEE
    assert region.guarantee.startswith("heuristic: past origins of one series")
    assert "if rows keep the same law over time" in region.guarantee
    assert region.n_calibration == 4 * HORIZON
    assert bool(found(AHEAD, level=0.99).infinite.all())  # 20 scores are too few


def test_fits_at_each_origin_are_updates_where_nothing_is_estimated() -> None:
    once, anew = calibrated(origins=3), calibrated(origins=3, refit=True)
    assert torch.allclose(once.scores(), anew.scores(), rtol=1e-6)


def test_rows_in_any_order_and_a_table_with_dates_give_the_same() -> None:
    order = RNG.permutation(N)
    shuffled = ppgp.Dataset(TIMES[order, None], VALUES[order])
    expected = calibrated(origins=3)
    assert torch.allclose(calibrated(shuffled, origins=3).scores(), expected.scores(), rtol=1e-8)
    days = pd.date_range("2024-01-01", periods=N + HORIZON)
    frame = pd.DataFrame({"day": days, "value": [*VALUES, *[0.0] * HORIZON]})
    table = ppgp.Dataset.from_frame(frame[:N], "value", dates="days")
    found = calibrated(table, origins=3)
    region = found(frame[N:])
    assert torch.allclose(region.width, expected(AHEAD).width, rtol=1e-6)


def test_several_recipes_are_averaged() -> None:
    smooth = models.StateSpaceGP(
        kernels.Matern(1.5, variance=9.0, lengthscale=9.0), noise=0.5, mean=0.0
    )
    options: Any = {**OPTIONS, "horizon": HORIZON, "origins": 3}
    found = ppgp.cross_calibrate([WALK, smooth], DATA, **options)
    whole = [ppgp.fit(m, DATA, progress=False, **OPTIONS) for m in (WALK, smooth)]
    average = ppgp.average(whole)
    assert isinstance(found.posterior, ppgp.Average)
    assert torch.allclose(found.posterior.weights, average.weights)
    assert found(AHEAD).lower.shape == (HORIZON,)
    first = ppgp.Dataset(TIMES[:45, None], VALUES[:45])
    fits = [ppgp.fit(m, first, progress=False, **OPTIONS) for m in (WALK, smooth)]
    forecast = ppgp.average(fits).predict(TIMES[45:50, None])
    score = (torch.tensor(VALUES[45:50]) - forecast.mean).abs() / forecast.std
    assert torch.allclose(found.scores()[0], score, rtol=1e-6)


def test_a_model_that_cannot_be_updated_is_fitted_at_each_origin() -> None:
    line = models.LinearRegression()
    found = ppgp.cross_calibrate(line, DATA, inference.Exact(draws=100), horizon=HORIZON, origins=3)
    fit = ppgp.fit(line, ppgp.Dataset(TIMES[:50, None], VALUES[:50]), inference.Exact(draws=100))
    forecast = fit.predict(TIMES[50:55, None])
    score = (torch.tensor(VALUES[50:55]) - forecast.mean).abs() / forecast.std
    assert torch.allclose(found.scores()[1], score, rtol=1e-6)


@pytest.mark.parametrize("wrong", [0, -3, True])
def test_origins_and_horizon_are_whole_numbers(wrong: Any) -> None:
    for name in ("origins", "horizon"):
        with pytest.raises(SettingError, match=f"a whole number of 1 or more as {name}"):
            calibrated(**{name: wrong})


def test_what_cannot_be_calibrated_is_refused() -> None:
    with pytest.raises(SettingError, match="a whole number of 1 or more as horizon"):
        ppgp.cross_calibrate(WALK, DATA, origins=3)  # type: ignore[call-overload]
    with pytest.raises(SettingError, match="at least 70 rows for 30 origins of 5 rows, got 60"):
        calibrated(origins=30)
    with pytest.raises(NotApplicable, match="a score with one side"):
        calibrated(score=conformal.Signed())
    with pytest.raises(NotApplicable, match=r"a model of ppgp\.models, or a list of them"):
        ppgp.cross_calibrate([], DATA, horizon=5)
    with pytest.raises(NotApplicable, match="a Dataset of one process"):
        ppgp.cross_calibrate(WALK, {"X": DATA.X}, horizon=5)  # type: ignore[call-overload]
    found = calibrated(origins=3)
    with pytest.raises(DataError, match="rows after the last row of the fit, got 1 that are not"):
        found([[59.0], [60.0]])
    with pytest.raises(DataError, match="rows at most 5 rows ahead, got one 6 rows ahead"):
        found([[65.0]])


def test_intervals_that_are_too_narrow_are_widened() -> None:
    """A walk whose steps are taken to be a third as long as they are: 59 % of 90 % intervals.

    The calibrated ones cover 90 % in the mean over 60 walks, apart from Monte Carlo error.
    """
    narrow = models.StateSpaceGP(
        kernels.Matern(0.5, variance=40.0, lengthscale=400.0), noise=1e-4, mean=0.0
    )
    covered, before = [], []
    for seed in range(60):
        walk = np.cumsum(np.random.default_rng(seed).normal(size=85))
        data = ppgp.Dataset(np.arange(80.0)[:, None], walk[:80])
        found = ppgp.cross_calibrate(narrow, data, horizon=5, origins=16, **OPTIONS)
        ahead = np.arange(80.0, 85.0)[:, None]
        covered.append(found(ahead).covers(walk[80:]).double().mean().item())
        interval = found.posterior.predict(ahead).interval(0.9)
        before.append(interval.covers(walk[80:]).double().mean().item())
    error = np.std(covered) / np.sqrt(60)
    assert np.mean(before) < 0.7
    assert abs(np.mean(covered) - 0.9) < 3 * error + 0.03


@pytest.mark.parametrize("other", [{"folds": 7}, {"fixed_beforehand": True}])
def test_options_of_folds_are_refused_beside_a_horizon(other: Any) -> None:
    with pytest.raises(SettingError, match="beside horizon"):
        ppgp.cross_calibrate(WALK, DATA, horizon=HORIZON, **other)
