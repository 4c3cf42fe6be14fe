"""The role of the time: a column of X that models of a series read first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ppgp
from ppgp import Dataset, inference, kernels, models
from ppgp.errors import SettingError, UnknownName
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
