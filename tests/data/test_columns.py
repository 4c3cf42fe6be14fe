"""Columns by name: frames keep their names, and new rows are reordered or rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch

import ppgp
from ppgp import Dataset, estimators, inference, models
from ppgp.errors import DataError, PpgpError

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"a": RNG.normal(size=30), "b": 100 + RNG.normal(size=30), "c": RNG.normal(size=30) / 100}
)
SERIES = pd.Series(3 * FRAME.a + FRAME.b - 10 * FRAME.c + 0.1 * RNG.normal(size=30), name="depth")
MIXED = ["c", "a", "b"]


def fit(data: Dataset) -> ppgp.Posterior:
    return ppgp.fit(models.LinearRegression(), data, inference.Laplace(draws=20), progress=False)


def test_a_dataset_keeps_the_names_of_a_frame_and_a_series() -> None:
    data = Dataset(FRAME, SERIES)
    assert (data.feature_names, data.target_name) == (("a", "b", "c"), "depth")
    assert Dataset(FRAME, SERIES.to_frame()).target_name == "depth"
    assert Dataset(FRAME[["b", "a"]], SERIES).feature_names == ("b", "a")
    given = Dataset(FRAME, SERIES, ["x", "y", "z"], "t")
    assert (given.feature_names, given.target_name) == (("x", "y", "z"), "t")


@pytest.mark.parametrize(
    "make",
    [lambda f: f.to_numpy(), lambda f: torch.tensor(f.to_numpy()), lambda f: f.to_numpy().tolist()],
)
def test_an_array_has_no_names(make: Callable[[Any], Any]) -> None:
    data = Dataset(make(FRAME), SERIES.to_numpy())
    assert data.feature_names is None
    assert data.target_name is None
    assert (
        Dataset(pd.DataFrame(FRAME.to_numpy()), SERIES).feature_names is None
    )  # counted columns are no names


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pd.concat([FRAME, FRAME[["a"]]], axis=1)
    with pytest.raises(DataError, match="column a more than once"):
        Dataset(twice, SERIES)
    with pytest.raises(DataError, match="column a more than once"):
        fit(Dataset(FRAME, SERIES)).predict(twice)


def test_reordered_columns_give_the_same_predictions() -> None:
    posterior = fit(Dataset(FRAME, SERIES))
    wanted = posterior.predict(FRAME.to_numpy()).mean
    with_target = FRAME[MIXED].assign(depth=SERIES)
    for table in (
        FRAME,
        FRAME[MIXED],
        with_target,
        Dataset(FRAME[MIXED], SERIES),
        pyarrow.Table.from_pandas(FRAME[MIXED]),
    ):
        torch.testing.assert_close(posterior.predict(table).mean, wanted, rtol=0, atol=1e-9)


def test_missing_and_foreign_columns_are_refused() -> None:
    posterior = fit(Dataset(FRAME, SERIES))
    for table in (
        FRAME[["a", "b"]],
        pd.DataFrame(FRAME.to_numpy()),
        Dataset(FRAME.rename(columns={"a": "A"}), SERIES),
    ):
        with pytest.raises(PpgpError, match="column"):
            posterior.predict(table)
    with pytest.raises(DataError, match="column e too"):
        posterior.predict(FRAME.assign(e=0.0))
    with pytest.raises(DataError, match="column e too"):
        posterior.predict(Dataset(FRAME.assign(e=0.0), SERIES))


def test_every_prediction_method_reads_names() -> None:
    gp = ppgp.fit(models.GP(), Dataset(FRAME, SERIES), inference.MAP(), progress=False)
    path = gp.pathwise(3)
    for ours, theirs in (
        (gp.latent(FRAME[MIXED]).mean, gp.latent(FRAME).mean),
        (path(FRAME[MIXED]), path(FRAME)),
        (gp.latent(Dataset(FRAME[MIXED], SERIES)).mean, gp.latent(FRAME).mean),
    ):
        assert torch.equal(ours, theirs)


def test_a_comparison_accepts_reordered_columns() -> None:
    posteriors = {"linear": fit(Dataset(FRAME[:20], SERIES[:20]))}
    same, mixed = (
        ppgp.compare(posteriors, test=Dataset(f[20:], SERIES[20:])).to_frame()
        for f in (FRAME, FRAME[MIXED])
    )
    assert mixed["rmse"].tolist() == pytest.approx(same["rmse"].tolist(), rel=1e-9)


def test_levels_that_the_training_rows_lack_are_refused_in_one_hot_columns() -> None:
    table = FRAME.assign(colour=["red", "blue"] * 15, y=SERIES)
    posterior = fit(Dataset.from_frame(table, "y", one_hot=True))
    green = pd.get_dummies(table.drop(columns="y"), prefix_sep="=", dtype=float).assign(
        **{"colour=green": 0.0}
    )
    with pytest.raises(DataError, match="colour=green too"):
        posterior.predict(green)
    wanted = posterior.predict(table.drop(columns="y")).mean
    assert torch.equal(posterior.predict(green.drop(columns="colour=green")).mean, wanted)


@pytest.mark.parametrize(
    "make", [estimators.ProbabilisticRegressor, estimators.ProbabilisticClassifier]
)
def test_estimators_refuse_reordered_columns_and_keep_the_names(make: type) -> None:
    regression = make is estimators.ProbabilisticRegressor
    y = SERIES if regression else (SERIES.mean() < SERIES).rename("depth")
    estimator = make("linear" if regression else "logistic", "map").fit(FRAME, y)
    with pytest.raises(ValueError, match="same order"):
        estimator.predict(FRAME[MIXED])
    data = estimator.posterior_.data
    assert (data.feature_names, data.target_name) == (("a", "b", "c"), "depth")
    wanted = estimator.predict_distribution(FRAME)
    found = estimator.posterior_.predict(FRAME[MIXED])
    assert torch.equal(
        found.mean if regression else found.probabilities,
        wanted.mean if regression else wanted.probabilities,
    )


def test_numbered_columns_are_read_in_numerical_order() -> None:
    counted = pd.DataFrame(FRAME.to_numpy())
    posterior = fit(Dataset(counted, SERIES))
    straight = posterior.predict(FRAME.to_numpy()).mean
    for frame in (counted, counted[[2, 0, 1]]):
        torch.testing.assert_close(posterior.predict(frame).mean, straight)
