"""Columns of dates as years, in tables, predictions and on the command line."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from forked import ppgp as command

import ppgp
from ppgp.data import Dataset
from ppgp.data.entries.dates import holds_dates, numbers_of
from ppgp.errors import DataError, SettingError, UnknownName
from ppgp.inference import MAP
from ppgp.kernels import Matern
from ppgp.models import StateSpaceGP

DAYS = ["2000-01-01", "2000-12-31", "1999-12-31", "2000-01-01 12:00"]
YEARS = [2000.0, 2000 + 365 / 365.25, 2000 - 1 / 365.25, 2000 + 0.5 / 365.25]


@pytest.mark.parametrize(
    "column",
    [
        DAYS,
        pd.to_datetime(pd.Series(DAYS), format="ISO8601"),
        pd.to_datetime(pd.Series(DAYS), format="ISO8601").dt.tz_localize("UTC"),
        [datetime.datetime.fromisoformat(day) for day in DAYS],
    ],
    ids=["text", "dates", "dates with a zone", "objects"],
)
def test_dates_become_years(column: object) -> None:
    frame = pd.DataFrame({"week": column, "x": range(4), "y": 1.0})
    data = Dataset.from_frame(frame, "y", dates="years")
    assert data.feature_names == ("week (years)", "x")
    wanted = torch.tensor(YEARS, dtype=torch.float64)
    torch.testing.assert_close(data.X[:, 0], wanted, rtol=0, atol=1e-11)


def table(rows: int) -> pd.DataFrame:
    date = pd.date_range("2001-02-03", periods=rows, freq="7D").strftime("%Y-%m-%d")
    t = torch.arange(rows, dtype=torch.float64)
    return pd.DataFrame({"date": date, "co2": (t / 8).sin().numpy()})


def test_predictions_take_the_dates_themselves() -> None:
    frame = table(40)
    data = Dataset.from_frame(frame.iloc[:35], "co2", dates="years")
    fit = ppgp.fit(StateSpaceGP(Matern(1.5, 1.0, 0.3), 0.01), data, MAP(), progress=False)
    years = 2000 + (pd.to_datetime(frame["date"]) - pd.Timestamp("2000-01-01")).dt.days / 365.25
    wanted = fit.predict(torch.tensor(years.to_numpy())[:, None])
    found = fit.predict(frame[["date"]])
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-8, atol=1e-8)
    with pytest.raises(UnknownName, match=r"the column date of the training rows.*no column date"):
        fit.predict(frame[["co2"]])
    with pytest.raises(
        DataError,
        match=r"dates .* in column date, got 'yesterday' in row 0: write them as 2024-05-31",
    ):
        fit.predict(pd.DataFrame({"date": ["yesterday"]}))
    with pytest.raises(DataError, match="NaN"):
        fit.predict(pd.DataFrame({"date": ["2001-01-01", None]}))


def test_dates_are_refused_with_what_to_do() -> None:
    frame = table(5)
    with pytest.raises(
        DataError,
        match=r"such as 2024-05-31 \(with dates='years', or time='date' for a series\), or correct",
    ):
        Dataset.from_frame(frame, "co2")
    with pytest.raises(SettingError, match=r"'refuse', 'years', .* as dates"):
        Dataset.from_frame(frame, "co2", dates="weeks")
    with pytest.raises(DataError, match="text or dates in column date"):
        Dataset.from_frame(frame.assign(date="soon"), "co2", dates="years")
    for other in ("31/05/2024", "31.5.24"):
        dates = [*frame["date"][:2], other, *frame["date"][3:]]
        with pytest.raises(DataError, match=f"YYYY-MM-DD in column date, got '{other}' in row 2"):
            Dataset.from_frame(frame.assign(date=dates), "co2", dates="years")


@pytest.mark.slow
def test_a_series_on_the_command_line(tmp_path: Path) -> None:
    frame = table(60)
    frame.iloc[:50].to_csv(tmp_path / "co2.csv", index=False)
    frame.iloc[50:].to_csv(tmp_path / "later.csv", index=False)
    fit = ["fit", "co2.csv", "--target", "co2", "--model", "state_space", "--how", "map"]
    done = command(*fit, cwd=tmp_path)
    assert done.returncode == 2
    assert "(with --dates years, or --time date for a series)" in done.stderr
    for words in (
        [*fit, "--dates", "years", "--no-progress"],
        ["predict", "posterior.safetensors", "later.csv"],
    ):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "predictions.csv")) == 10


def test_months_and_quarters_are_their_first_day() -> None:
    first = [np.datetime64(day) for day in ("2018-01-01", "2018-04-01", "2018-10-01")]
    days = [float((day - np.datetime64("2000-01-01")) / np.timedelta64(1, "D")) for day in first]
    for column in (
        pd.Series(pd.PeriodIndex(["2018Q1", "2018Q2", "2018Q4"], freq="Q")),
        pd.Series(pd.PeriodIndex(["2018-01", "2018-04", "2018-10"], freq="M")),
        pd.Series(["2018Q1", "2018-Q2", "2018Q4"]),
        pd.Series(["2018-01", "2018-04", "2018-10"]),
    ):
        assert holds_dates(column)
        assert numbers_of(column, "c", "days").tolist() == days
    holed = numbers_of(pd.Series(["2018Q1", None]), "c", "days")
    assert holed[0] == days[0]
    assert np.isnan(holed[1])
    assert not holds_dates(pd.Series(["2018Q1", "2018Q5"]))
    assert not holds_dates(pd.Series(["Q1", "Q2"]))
