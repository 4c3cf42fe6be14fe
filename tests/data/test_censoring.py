"""Flags of right-censored targets in a Dataset, and who refuses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp import Dataset, fit, learners, likelihoods, models
from ppgp.data import load
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.runtime.fingerprint import fingerprint

FLAGS = np.array([0, 1, 0, 0, 1, 0], dtype=bool)
X = np.arange(12.0).reshape(6, 2)
Y = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0])


def table() -> Dataset:
    return Dataset(X, Y, right_censored=FLAGS)


@pytest.mark.parametrize(
    "flags", [FLAGS, FLAGS.astype(int), FLAGS.astype(float)[:, None], FLAGS.tolist()]
)
def test_flags_are_booleans_or_numbers(flags: object) -> None:
    found = Dataset(X, Y, right_censored=flags).right_censored
    assert found is not None
    assert found.dtype == torch.bool
    assert found.tolist() == FLAGS.tolist()


@pytest.mark.parametrize("wrong", [2, -1, 0.5, np.nan])
def test_flags_that_are_not_0_or_1_are_refused(wrong: float) -> None:
    flags = FLAGS.astype(float)
    flags[3] = wrong
    with pytest.raises(DataError, match="flags 0 or 1 as right_censored, got others in row 3"):
        Dataset(X, Y, right_censored=flags)


@pytest.mark.parametrize("wrong", [FLAGS[:5], np.ones((6, 2)), True])
def test_there_is_one_flag_per_row(wrong: object) -> None:
    with pytest.raises(DataError, match=r"right_censored with shape \[6\]"):
        Dataset(X, Y, right_censored=wrong)


def test_flags_follow_their_rows() -> None:
    data = table()
    assert data.rows([1, 2, 4]).right_censored.tolist() == [True, False, True]  # type: ignore[union-attr]
    scaled, scaler = data.standardised()
    assert torch.equal(scaled.right_censored, data.right_censored)  # type: ignore[arg-type]
    assert torch.equal(scaler.back(scaled).right_censored, data.right_censored)  # type: ignore[arg-type]
    moved = data.to(torch.float32)
    assert moved.right_censored.dtype == torch.bool  # type: ignore[union-attr]
    assert "2 right-censored" in repr(data)
    assert sum(int(part.right_censored.sum()) for part in data.split(0.5)) == 2  # type: ignore[union-attr]


def test_other_flags_are_other_data() -> None:
    data, plain = table(), Dataset(X, Y)
    other = Dataset(X, Y, right_censored=~FLAGS)
    assert data.same_rows(table())
    assert not data.same_rows(plain)
    assert not plain.same_rows(data)
    assert not data.same_rows(other)
    digests = {fingerprint(one.content) for one in (data, plain, other)}
    assert len(digests) == 3


def test_a_column_of_a_frame_or_a_file_holds_the_flags(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1], "time": Y, "alive": FLAGS.astype(int)})
    data = Dataset.from_frame(frame, "time", right_censored="alive")
    assert data.feature_names == ("age", "dose")
    assert data.censored_name == "alive"
    assert data.right_censored.tolist() == FLAGS.tolist()  # type: ignore[union-attr]
    path = tmp_path / "times.csv"
    frame.to_csv(path, index=False)
    assert load(path, target="time", right_censored="alive").same_rows(data)
    with pytest.raises(UnknownName, match="alive"):
        Dataset.from_frame(frame, "time", right_censored="alife")
    with pytest.raises(SettingError, match="right_censored in a column of its own"):
        Dataset.from_frame(frame, "time", right_censored="time")
    with pytest.raises(SettingError, match="right_censored of a file"):
        load("iris", right_censored="alive")


def test_frames_of_new_rows_may_hold_the_flags() -> None:
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1], "time": Y, "alive": FLAGS})
    data = Dataset.from_frame(frame, "time", right_censored="alive")
    model = models.Boosted(likelihoods.Exponential(), learners.Trees(min_rows=1))
    posterior = fit(model, data, ppgp.inference.NaturalGradientBoosting("nll", 2, folds=None))
    assert torch.equal(posterior.predict(frame).mean, posterior.predict(data).mean)


def test_models_that_would_not_use_the_flags_refuse_them() -> None:
    with pytest.raises(NotApplicable, match="right-censored targets, got LinearRegression"):
        fit(models.LinearRegression(), table(), progress=False)
    with pytest.raises(NotApplicable, match="right-censored"):
        fit(models.Boosted(likelihoods.Gamma(shape=2.0)), table(), progress=False)
