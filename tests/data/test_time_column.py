"""The role of the time: a column of X that models of a series read first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ppgp
from ppgp import Dataset, inference, kernels, models
from ppgp.cli.data_options import in_the_shell
from ppgp.errors import DataError, DataWarning, SettingError, UnknownName
from ppgp.priors import Normal

N = 30
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "holiday": RNG.integers(0, 2, N).astype(float),
        "sales": RNG.normal(size=N).cumsum() + 20,
        "day": pd.date_range("2024-01-01", periods=N, freq="D"),
    }
)


def test_the_time_comes_first_and_dates_become_days() -> None:
    data = Dataset.from_frame(FRAME, "sales", time="day")
    assert data.feature_names == ("day (days)", "holiday")
    assert (data.time, data.time_column) == ("day (days)", 0)
    np.testing.assert_allclose(data.X[:, 0].diff().numpy(), 1.0)
    assert "time day (days)" in repr(data)
    assert "time" in data._repr_html_()
    hours = Dataset.from_frame(FRAME, "sales", time="day", dates="hours")
    assert hours.time == "day (hours)"


def of_times(times: Any) -> Dataset:
    return Dataset.from_frame(FRAME.assign(day=times), "sales", time="day")


@pytest.mark.parametrize("time", ["day", None])
@pytest.mark.parametrize("name", ["day", None])
def test_times_in_the_index_are_refused_with_the_call_that_makes_them_a_column(
    time: str | None, name: str | None
) -> None:
    days = pd.DatetimeIndex(FRAME["day"].to_numpy(), name=name)
    frame = pd.DataFrame({"sales": FRAME["sales"].to_numpy()}, index=days)
    column = time or name or "time"
    call = r"frame.reset_index\(\)" if name else rf"frame.reset_index\(names='{column}'\)"
    with pytest.raises(DataError, match=rf"{call}, and pass time='{column}'$"):
        Dataset.from_frame(frame, "sales", time=time)
    with pytest.raises(DataError, match=r"the times in its index"):
        Dataset.from_frame(frame.to_period("D"), "sales", time=time)
    whole = frame.reset_index() if name else frame.reset_index(names=column)
    assert Dataset.from_frame(whole, "sales", time=column).time == f"{column} (days)"


def test_times_that_are_no_dates_and_no_numbers_are_refused_with_the_way_out() -> None:
    days = FRAME["day"]
    for form in ("%d %b %Y", "%d/%m/%Y"):
        said = (
            rf"got '{days.dt.strftime(form)[0]}' in row 0: write them as 2024-05-31, .*to_datetime"
        )
        with pytest.raises(DataError, match=said):
            of_times(days.dt.strftime(form))
    with pytest.raises(DataError, match=r"got durations in column day: .*column / pandas\.Time"):
        of_times(days - days[0])
    with pytest.raises(DataError, match=r"numbers as text in column day: .*astype\(float\)$"):
        of_times(np.arange(30.0).astype(str).astype(object))
    with pytest.raises(DataError, match="got 'no' in row 2: write them as"):
        of_times(["0", "1", "no", *map(str, range(3, 30))])
    with pytest.raises(DataError, match="'0,5' in row 0 has a decimal comma"):
        of_times([f"{i},5" for i in range(30)])


@pytest.mark.parametrize(
    ("look", "call"),
    [("unix seconds", "unit='s'"), ("yyyymm", "format='%Y%m'"), ("yyyymmdd", "format='%Y%m%d'")],
)
def test_whole_numbers_that_look_like_dates_are_said(look: str, call: str) -> None:
    months = pd.date_range("2015-01-01", periods=N, freq="MS")
    forms = {"yyyymm": "%Y%m", "yyyymmdd": "%Y%m%d"}
    times = months.astype("datetime64[s]").astype("int64")
    if look in forms:
        times = months.strftime(forms[look]).astype(int)
    expected = rf"day look like {look}, .*\(column.*, {call}\) makes"
    with pytest.warns(DataWarning, match=expected) as said:
        data = of_times(times)
    np.testing.assert_array_equal(data.X[:, 0], times.astype(float))
    assert in_the_shell(str(said[0].message)).endswith("plain numbers: write them as 2024-05-31")


def test_the_line_for_months_in_floats_makes_dates_of_them() -> None:
    column = pd.Series(pd.date_range("2015-01-01", periods=N, freq="MS").strftime("%Y%m"))
    column = column.astype(float)
    with pytest.warns(DataWarning, match="look like yyyymm") as said:
        of_times(column)
    line = str(said[0].message).split("plain numbers: ")[1].removesuffix(" makes dates of them")
    assert line == "pandas.to_datetime(column.astype('Int64').astype(str), format='%Y%m')"
    column[2] = np.nan
    found = pd.to_datetime(column.astype("Int64").astype(str), format="%Y%m")
    assert found[1] == pd.Timestamp("2015-02-01")
    assert found.isna().sum() == 1


def test_two_columns_of_the_name_of_the_time_are_refused() -> None:
    doubled = pd.concat([FRAME, FRAME[["day"]]], axis=1)
    with pytest.raises(DataError, match="one column day as the time, got 2 columns"):
        Dataset.from_frame(doubled, "sales", time="day")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("start", [0.0, 1990.0, 2e4, 200_020.0, 1e9 + 0.5, 3e9])
def test_other_numbers_are_taken_as_they_are(start: float) -> None:
    np.testing.assert_array_equal(of_times(start + np.arange(N)).X[:, 0], start + np.arange(N))


def test_it_is_kept_by_whatever_makes_other_rows() -> None:
    data = Dataset.from_frame(FRAME, "sales", time="day")
    scaled, scaler = data.standardised()
    others = [*data.split(0.5), data.rows([2, 1]), scaled, scaler.back(scaled), data.to("cpu")]
    assert [other.time for other in others] == [data.time] * len(others)
    plain = Dataset(data.X.numpy(), data.y, time=0)
    assert plain.split(0.5)[0].time_column == 0


def test_new_rows_are_read_by_name_and_files_keep_it(tmp_path: Path) -> None:
    data = Dataset.from_frame(FRAME[:25], "sales", time="day")
    model = models.StateSpaceGP(kernels.Matern(1.5), regressors=Normal(0.0, 1.0))
    posterior = ppgp.fit(model, data, inference.MAP(starts=1), progress=False)
    ahead = FRAME[25:].drop(columns="sales")
    forecast = posterior.predict(ahead).mean
    posterior.save(tmp_path / "series.safetensors")
    loaded = ppgp.load_posterior(tmp_path / "series.safetensors")
    assert loaded.data.time == "day (days)"
    np.testing.assert_array_equal(loaded.predict(ahead[["day", "holiday"]]).mean, forecast)


def test_a_time_that_is_not_first_is_refused_by_models_of_a_series() -> None:
    X = np.c_[FRAME["holiday"], np.arange(float(N))]
    data = Dataset(X, FRAME["sales"], time=1)
    model = models.StateSpaceGP(kernels.Matern(1.5), regressors=Normal(0.0, 1.0))
    with pytest.raises(SettingError, match="the time as the first column of X"):
        ppgp.fit(model, data, inference.MAP(), progress=False)


@pytest.mark.parametrize(
    ("time", "error", "words"),
    [
        ("dya", UnknownName, "did you mean 'day'"),
        ("sales", SettingError, "another column than the target"),
    ],
)
def test_a_wrong_name_is_refused(time: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Dataset.from_frame(FRAME, "sales", time=time)


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownName, match="time column"):
        Dataset(FRAME[["holiday"]], FRAME["sales"], time="day")


def test_a_time_with_another_role_is_refused() -> None:
    names = list(FRAME.columns)
    target, time = names[-1], names[0]
    with pytest.raises(SettingError, match="as time and another"):
        Dataset.from_frame(FRAME, target, time=time, ids=time)
