"""A table with one column of dates is fitted as a series by the command line."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forked import ppgp

import ppgp as library
from ppgp.cli.fit_commands import _of_series, _warn_of_long_choice
from ppgp.cli.recipe_options import has_times
from ppgp.errors import DataError, PpgpWarning, UnknownName

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
    done = ppgp("diagnose", "s.safetensors", cwd=tmp_path)
    assert "scalars, the largest weight first" in done.stdout
    assert "nan" not in done.stdout
    done = ppgp("predict", "s.safetensors", "ahead.csv", "--out", "p.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    forecast = pd.read_csv(tmp_path / "p.csv")
    error = np.sqrt(np.mean((forecast["mean"] - WAVE[40:]) ** 2))
    assert error < 0.5 * np.sqrt(np.mean((FRAME["sales"][39] - WAVE[40:]) ** 2))
    assert np.all(forecast["lower"].to_numpy() < forecast["upper"].to_numpy())


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


def why_none(
    frame: pd.DataFrame, *settings: str, likelihood: str | None = None, **options: Any
) -> str | None:
    """Return why a table of times has no average of candidates."""
    data = library.Dataset.from_frame(frame, "sales", time="month", **options)
    series, why = _of_series(data, likelihood, "map", list(settings))
    assert (series is None) == (why is not None)
    return why


def test_a_table_of_times_without_an_average_says_why() -> None:
    shares = FRAME.assign(sales=np.linspace(0.1, 0.9, 48))
    for law in (None, "student-t"):
        assert why_none(shares, likelihood=law) is None
    need = "candidates for a series need "
    expected = need + "a likelihood whose series have candidates, .*, got Beta$"
    assert re.match(expected, str(why_none(shares, likelihood="beta")))
    zeros = FRAME.assign(sales=0.0)
    expected = need + "rows of a series that differ in time and y, got y = 0 in all 48"
    assert why_none(zeros, likelihood="poisson") == expected
    assert why_none(zeros.iloc[:3], likelihood="poisson") is None  # fit_candidates names the number
    labels = FRAME.assign(sales=np.where(WAVE > 10, "high", "low"))
    assert why_none(labels) == "y holds labels"
    weighted = FRAME.assign(w=1.0)
    assert why_none(weighted, weights="w") == "they take no --weights"
    with pytest.raises(DataError, match=r"expected counts 0, 1, 2, \.\.\. in y, got -1 in row 0"):
        why_none(FRAME.assign(sales=-1.0), likelihood="poisson")


def test_settings_that_all_candidates_take_keep_them() -> None:
    assert why_none(FRAME, "map.steps=50", "noise=0.1") is None
    data = library.Dataset.from_frame(FRAME, "sales", time="month")
    series, _ = _of_series(data, None, "laplace", ["laplace.draws=7"])
    assert series is not None
    assert series[1] == library.inference.Laplace(draws=7)
    for setting in ("kernel.lengthscale=2", "kernel=RBF()", "gp.noise=0.1"):
        assert why_none(FRAME, setting) == f"not all of them take --set {setting}"
    for settings in (["map.stepz=50"], ["map.stepz=50", "kernel.lengthscale=2"]):
        with pytest.raises(UnknownName, match="stepz"):
            why_none(FRAME, *settings)


def test_the_command_says_what_it_fits_in_place_of_the_average(tmp_path: Path) -> None:
    labels = FRAME.assign(sales=np.where(WAVE > 10, "high", "low"))
    labels.to_csv(tmp_path / "labels.csv", index=False)
    FRAME.iloc[:3].to_csv(tmp_path / "few.csv", index=False)
    options = ["--target", "sales", "--time", "month", "--no-progress"]
    done = ppgp("fit", "labels.csv", *options, "--how", "map", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = "note: one logistic by map is fitted, no average of candidates: y holds labels\n"
    assert said in done.stderr
    done = ppgp("fit", "few.csv", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("got 3: add rows, or name a model, such as --model gp\n")


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


def test_only_a_table_of_one_column_of_dates_or_of_a_named_time_has_times() -> None:
    from_frame = library.Dataset.from_frame
    assert has_times(from_frame(FRAME, "sales", dates="years"))
    assert not has_times(from_frame(FRAME.assign(price=1.5), "sales", dates="years"))
    assert has_times(from_frame(FRAME.assign(price=1.5), "sales", time="month"))
    assert not has_times(from_frame(FRAME.assign(month=np.arange(48.0)), "sales"))
