"""Figures of predictions show the numbers of the prediction."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import ppgp
from ppgp import geostatistics, inference, kernels, models, plots
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.plots.interval_scores import mean_interval_score
from ppgp.plots.pit_histogram import band_of_counts
from ppgp.posterior.prediction import Prediction

F64 = torch.float64


@pytest.fixture(scope="module")
def normal() -> tuple[Prediction, pd.Series]:
    """Return a normal prediction of 200 rows, and y drawn from it."""
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=200), rng.uniform(0.5, 2.0, size=200)
    law = torch.distributions.Normal(torch.as_tensor(mean), torch.as_tensor(sd))
    return Prediction(law), pd.Series(mean + sd * rng.normal(size=200), name="yield")


@pytest.fixture(scope="module")
def surface_fit() -> ppgp.Posterior:
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.uniform(size=(25, 3)), columns=["east", "north", "depth"])
    y = pd.Series(X["east"] - X["north"] + 0.1 * rng.normal(size=25), name="lead")
    model = models.GP(kernels.RBF())
    return ppgp.fit(model, ppgp.Dataset(X, y), inference.MAP(), progress=False)


def test_residuals_are_standard_normal_quantiles(normal: tuple[Prediction, pd.Series]) -> None:
    prediction, y = normal
    axis = plots.residuals(prediction, y, levels=(0.5, 0.9)).axes[0]
    shown = np.concatenate([line.get_ydata() for line in axis.lines[:2]])
    standardised = (y.to_numpy() - prediction.mean.numpy()) / prediction.std.numpy()
    np.testing.assert_allclose(np.sort(shown), np.sort(standardised), atol=1e-9)
    # the dots outside the widest band are those beyond its edges
    assert np.abs(axis.lines[0].get_ydata()).max() <= stats.norm.ppf(0.95)
    assert np.abs(axis.lines[1].get_ydata()).min() > stats.norm.ppf(0.95)
    edges = [patch.get_height() for patch in axis.patches]
    assert edges == pytest.approx([2 * stats.norm.ppf(0.95), 2 * stats.norm.ppf(0.75)])
    assert axis.get_xlabel() == "predictive mean of yield"


def test_residuals_of_the_response_are_in_its_unit(normal: tuple[Prediction, pd.Series]) -> None:
    prediction, y = normal
    axis = plots.residuals(prediction, y, kind="response").axes[0]
    shown = np.concatenate([line.get_ydata() for line in axis.lines[:2]])
    np.testing.assert_allclose(np.sort(shown), np.sort(y.to_numpy() - prediction.mean.numpy()))
    assert axis.get_ylabel() == "yield - predictive mean"
    with pytest.raises(UnknownName, match="did you mean 'quantile'"):
        plots.residuals(prediction, y, kind="quantiles")


def test_residuals_of_counts_are_finite() -> None:
    counts = Prediction(torch.distributions.Poisson(torch.full((50,), 2.0, dtype=F64)))
    y = torch.arange(50) % 6
    axis = plots.residuals(counts, y).axes[0]
    assert np.isfinite(axis.lines[0].get_ydata()).all()


def test_pit_bars_are_the_histogram(normal: tuple[Prediction, pd.Series]) -> None:
    prediction, y = normal
    axis = plots.pit(prediction, y, bins=8).axes[0]
    heights = [bar.get_height() for bar in axis.containers[0]]
    counts, _ = np.histogram(prediction.pit(y).numpy(), bins=8, range=(0, 1))
    np.testing.assert_allclose(heights, counts * 8 / 200)
    assert axis.get_title() == "PIT of 200 rows: 0 of 8 bins outside the band"
    biased = plots.pit(prediction, y + 3).axes[0].get_title()
    assert "0 of 10" not in biased
    with pytest.raises(SettingError, match="at least two bins"):
        plots.pit(prediction, y, bins=1)


def test_the_band_of_counts_covers_all_bins_together() -> None:
    lower, upper = band_of_counts(100, 10, 0.95)
    counts = np.random.default_rng(5).multinomial(100, np.full(10, 0.1), size=4000)
    covered = ((counts >= lower) & (counts <= upper)).all(1).mean()
    # counts are whole numbers, so that the band covers a little more
    assert 0.94 < covered < 0.995


def test_the_interval_score_is_width_plus_penalty(normal: tuple[Prediction, pd.Series]) -> None:
    prediction, y = normal
    levels = (0.5, 0.8)
    axis = plots.interval_score({"own": prediction}, y, levels).axes[0]
    for level, score, width in zip(
        levels, axis.lines[0].get_ydata(), axis.lines[1].get_ydata(), strict=True
    ):
        lower, upper = (t.numpy() for t in prediction.interval(level))
        below, above = np.clip(lower - y, 0, None), np.clip(y - upper, 0, None)
        expected = (upper - lower + 2 / (1 - level) * (below + above)).mean()
        assert score == pytest.approx(expected)
        assert width == pytest.approx((upper - lower).mean())
    # the expected score of the true interval is lowest: a normal one has a closed form
    region = Prediction(torch.distributions.Normal(torch.zeros(1, dtype=F64), 1.0)).interval(0.8)
    assert mean_interval_score(region, np.zeros(1)) == pytest.approx(2 * stats.norm.ppf(0.9))
    with pytest.raises(SettingError, match="at least one prediction"):
        plots.interval_score({}, y)


def test_a_forecast_has_dates_and_bands(normal: tuple[Prediction, pd.Series]) -> None:
    prediction, y = normal
    days = pd.Series(pd.date_range("2024-01-01", periods=230), name="day")
    history = (days[:30], pd.Series(np.zeros(30), name="sales"))
    axis = plots.forecast(prediction, days[30:], history, y, levels=(0.5, 0.9)).axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("day", "sales")
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == ["history", "90%", "50%", "median", "observed"]
    lower, upper = (t.numpy() for t in prediction.interval(0.9))
    edges = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == pytest.approx((lower.min(), upper.max()))
    with pytest.raises(DataError, match=r"one time per row \(200\), got 3"):
        plots.forecast(prediction, days[:3])
    of_python = plots.forecast(prediction, [day.date() for day in days[30:]]).axes[0]
    shown = np.asarray(of_python.lines[0].get_xdata())
    np.testing.assert_array_equal(shown, days[30:].to_numpy().astype("datetime64[us]"))
    with pytest.raises(DataError, match="numbers or dates"):
        plots.forecast(prediction, np.array(["a"] * 200))


def test_the_bars_of_a_row_do_not_touch_those_of_the_next(
    normal: tuple[Prediction, pd.Series],
) -> None:
    prediction, y = normal
    region = prediction.interval(0.9)
    axis = plots.intervals(prediction, y, region, own=prediction.interval(0.5)).axes[0]
    points = 72 * 9 / len(y)  # of a figure of 9 inches, for each row
    own, conformal = (bars.get_linewidths()[0] for bars in axis.collections[:2])
    assert conformal < own < points
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels[-2:] == ["yield, in its conformal interval", "yield, outside it"]


def test_the_error_bars_of_shares_are_shares() -> None:
    p = torch.tensor([[0.99, 0.01]] * 30 + [[0.55, 0.45]] * 30, dtype=F64)
    y = torch.zeros(60, dtype=torch.long)
    prediction = Prediction(torch.distributions.Categorical(probs=p))
    axis = plots.reliability(prediction, y, bins=2).axes[0]
    (bars,) = axis.collections
    ends = np.concatenate([segment[:, 1] for segment in bars.get_segments()])
    assert ends.max() == 1.0
    assert ends.min() > axis.get_ylim()[0]


def test_a_map_shows_mean_and_sd_at_the_grid(surface_fit: ppgp.Posterior) -> None:
    figure = plots.map_of(surface_fit, ("north", "east"), points=4)
    left, right = figure.axes[:2]
    assert (left.get_xlabel(), left.get_ylabel()) == ("north", "east")
    X = surface_fit.scaler.inputs_back(surface_fit.data.X).numpy()
    low, high = X.min(0), X.max(0)
    margin = 0.05 * (high - low)
    rows = np.tile(X.mean(0), (16, 1))
    north, east = (np.linspace(low[k] - margin[k], high[k] + margin[k], 4) for k in (1, 0))
    rows[:, 1], rows[:, 0] = np.tile(north, 4), np.repeat(east, 4)
    latent = surface_fit.latent(rows)
    shown = [np.asarray(axis.collections[0].get_array()).ravel() for axis in (left, right)]
    np.testing.assert_allclose(shown[0], latent.mean.numpy(), rtol=1e-6)
    np.testing.assert_allclose(shown[1], latent.std.numpy(), rtol=1e-6)
    assert len(left.collections[1].get_offsets()) == 25


def test_a_map_needs_two_columns(surface_fit: ppgp.Posterior) -> None:
    line = surface_fit.data.X[:, :1]
    data = ppgp.Dataset(line, surface_fit.data.y)
    one = ppgp.fit(models.LinearRegression(), data, inference.MAP(), progress=False)
    for draw in (plots.map_of, plots.surface):
        with pytest.raises(NotApplicable, match="two columns of X"):
            draw(one)
        with pytest.raises(SettingError, match="two different columns"):
            draw(surface_fit, (1, 1))
        with pytest.raises(UnknownName, match="did you mean 'north'"):
            draw(surface_fit, ("east", "nort"))


def test_a_surface_has_the_rows_and_a_bar_of_the_sd(surface_fit: ppgp.Posterior) -> None:
    figure = plots.surface(surface_fit, points=5)
    axis, bar = figure.axes
    assert axis.get_zlabel() == "lead"
    assert bar.get_ylabel() == "sd of lead"
    assert len(axis.collections[1].get_offsets()) == 25


def test_a_variogram_shows_its_lags_and_models() -> None:
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 10, size=(80, 2))
    data = ppgp.Dataset(X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=80), target_name="zinc")
    empirical = geostatistics.empirical_variogram(data, lags=5)
    fitted = geostatistics.VariogramFit(kernels.Exponential(1.0, 2.0), 0.1, 0.0, True)
    axis = plots.variogram(empirical, {"a": fitted, "b": fitted}).axes[0]
    dots, first, _ = axis.lines
    np.testing.assert_allclose(dots.get_xydata()[:, 1], empirical.semivariance.numpy())
    x, height = first.get_xydata()[-1]
    assert height == pytest.approx(0.1 + 1 - np.exp(-x / 2))
    assert [text.get_text() for text in axis.texts] == [str(k) for k in empirical.pairs.tolist()]
    assert axis.get_ylabel() == "semivariance, in the squared unit of zinc"
