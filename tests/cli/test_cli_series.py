"""A table with one column of dates is fitted as a series by the command line."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from forked import ppgp

import ppgp as library
from ppgp.cli.fit_commands import _of_series, _warn_of_long_choice
from ppgp.cli.recipe_options import is_series
from ppgp.errors import PpgpWarning

MONTHS = pd.date_range("2020-01-01", periods=48, freq="MS")
WAVE = 10 + 2 * np.sin(2 * np.pi * np.arange(48) / 12)
FRAME = pd.DataFrame(
    {"month": MONTHS, "sales": WAVE + 0.3 * np.random.default_rng(0).normal(size=48)}
)


def test_fit_saves_the_average_of_the_candidates_and_predict_reads_it(tmp_path: Path) -> None:
    FRAME[:40].to_csv(tmp_path / "past.csv", index=False)
    FRAME[40:].to_csv(tmp_path / "ahead.csv", index=False)
    options = ["--dates", "days", "--out", "s.safetensors", "--no-progress"]
    done = ppgp("fit", "past.csv", "--target", "sales", *options, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == "series"
    weights = [row["weight"] for row in found["rows"]]
    assert sum(weights) == pytest.approx(1.0)
    assert weights == sorted(weights, reverse=True)
    average = library.Average.load(tmp_path / "s.safetensors")
    assert average.weights.sort(descending=True).values.tolist() == pytest.approx(weights)
    done = ppgp("predict", "s.safetensors", "ahead.csv", "--out", "p.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    forecast = pd.read_csv(tmp_path / "p.csv")
    error = np.sqrt(np.mean((forecast["mean"] - WAVE[40:]) ** 2))
    assert error < 0.5 * np.sqrt(np.mean((FRAME["sales"][39] - WAVE[40:]) ** 2))
    assert (forecast["lower"] < forecast["upper"]).all()


def test_the_column_of_the_time_is_named_and_others_are_regressors(tmp_path: Path) -> None:
    holiday = (np.arange(48) % 5 == 0).astype(float)
    table = FRAME.assign(holiday=holiday, sales=FRAME["sales"] + 3 * holiday)
    table = pd.DataFrame(table, columns=["holiday", "month", "sales"])
    table.iloc[:40].to_csv(tmp_path / "past.csv", index=False)
    table.iloc[40:].to_csv(tmp_path / "ahead.csv", index=False)
    options = ["--time", "month", "--out", "s.safetensors", "--no-progress", "--json"]
    done = ppgp("fit", "past.csv", "--target", "sales", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "series"
    average = library.Average.load(tmp_path / "s.safetensors")
    assert average.data.feature_names == ("month (days)", "holiday")
    done = ppgp("predict", "s.safetensors", "ahead.csv", "--out", "p.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    error = pd.read_csv(tmp_path / "p.csv")["mean"].to_numpy() - np.asarray(table["sales"])[40:]
    assert np.sqrt(np.mean(error**2)) < 1.0
    done = ppgp("fit", "past.csv", "--target", "sales", "--time", "mont", cwd=tmp_path)
    assert done.returncode != 0
    assert "month" in done.stderr


def test_a_series_of_counts_has_the_candidates_of_its_likelihood(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).poisson(np.exp(0.2 * WAVE - 1))
    FRAME.assign(sales=counts).to_csv(tmp_path / "past.csv", index=False)
    options = ["--time", "month", "--likelihood", "poisson", "--out", "s.safetensors", "--json"]
    done = ppgp("fit", "past.csv", "--target", "sales", *options, "--no-progress", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["how"]) == ("series", "map")
    average = library.Average.load(tmp_path / "s.safetensors")
    assert {type(one.model).__name__ for one in average.posteriors.values()} == {
        "LatentStateSpaceGP"
    }
    forecast = average.predict([[float(average.data.X.max()) + 30.0]])
    assert forecast.kind == "count"


def test_a_likelihood_without_candidates_leaves_the_table_to_other_models() -> None:
    shares = library.Dataset.from_frame(
        FRAME.assign(sales=np.linspace(0.1, 0.9, 48)), "sales", dates="years"
    )
    assert _of_series(shares, "beta") is None
    assert _of_series(shares, None) is not None
    assert _of_series(shares, "student-t") is not None


def test_a_choice_that_takes_long_is_said_before() -> None:
    days = pd.date_range("2020-01-01", periods=700, freq="D")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"day": days, "y": rng.normal(size=700).cumsum()})
    data = library.Dataset.from_frame(frame, "y", time="day")
    with pytest.warns(PpgpWarning, match=r"\d+ candidates for 700 rows take about .*: one alone"):
        _warn_of_long_choice(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_of_long_choice(data.rows(slice(0, 100)))


def test_only_a_table_of_one_column_of_dates_is_a_series() -> None:
    from_frame = library.Dataset.from_frame
    assert is_series(from_frame(FRAME, "sales", dates="years"))
    assert not is_series(from_frame(FRAME.assign(price=1.5), "sales", dates="years"))
    assert is_series(from_frame(FRAME.assign(price=1.5), "sales", time="month"))
    assert not is_series(from_frame(FRAME.assign(month=np.arange(48.0)), "sales"))
    labels = FRAME.assign(sales=np.where(WAVE > 10, "high", "low"))
    assert not is_series(from_frame(labels, "sales", dates="years"))
    weighted = from_frame(FRAME.assign(w=1.0), "sales", dates="years", weights="w")
    assert not is_series(weighted)
