"""Missing values and columns of codes: in a Dataset, its Scaler, models, and new rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution

import ppgp
from ppgp import Dataset, inference, models
from ppgp.data import in_order
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.models.base import Theta
from ppgp.provenance.provenance import same_rows

NAN = float("nan")


@dataclass(frozen=True)
class Filled(models.LogisticRegression):
    """A model that reads missing values as 0, and codes as numbers."""

    takes_missing = True
    takes_categories = True

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        return super().distribution(theta, X.nan_to_num())


def frame() -> pd.DataFrame:
    """Return a table with missing numbers and categories."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(5.0, 2.0, 40), "age": rng.normal(size=40)})
    table["colour"] = rng.choice(["red", "blue", "green"], 40)
    table["grade"] = pd.Categorical(rng.choice(["low", "high"], 40), ["low", "middle", "high"])
    table["y"] = (rng.random(40) < 0.5).astype(float)
    table.loc[3, "size"] = NAN
    table.loc[[5, 9], "colour"] = None
    return table


def kept() -> Dataset:
    return Dataset.from_frame(frame(), "y", missing="keep", categories="codes")


def test_missing_values_are_refused_unless_kept() -> None:
    X, y = [[1.0, NAN], [2.0, 3.0], [0.0, 1.0]], [0.0, 1.0, 0.0]
    with pytest.raises(DataError, match="NaN or infinity in row 0, column 1"):
        Dataset(X, y)
    data = Dataset(X, y, missing="keep")
    assert bool(data.X[0, 1].isnan())
    assert "1 missing" in repr(data)
    assert data.rows([0, 1]).missing == "keep"
    with pytest.raises(DataError, match="infinity in row 1, column 0"):
        Dataset([[1.0], [float("inf")]], y[:2], missing="keep")
    with pytest.raises(SettingError, match="one of 'refuse', 'keep' as missing"):
        Dataset(X, y, missing="drop")


def test_codes_follow_the_order_of_categories_or_the_alphabet() -> None:
    data, table = kept(), frame()
    assert data.categorical == ("colour", "grade")
    assert data.levels == (("blue", "green", "red"), ("low", "middle", "high"))
    assert data.coded == [2, 3]
    assert bool(data.X[[5, 9], 2].isnan().all())
    assert data.X[:, 3].tolist() == [{"low": 0.0, "high": 2.0}[one] for one in table["grade"]]
    with pytest.raises(DataError, match="column size, row 3; column colour, rows 5, 9"):
        Dataset.from_frame(table, "y", categories="codes")
    with pytest.raises(SettingError, match="as categories"):
        Dataset.from_frame(table, "y", categories="numbers")
    present = table.dropna()
    hot = Dataset.from_frame(present, "y", categories="one-hot")
    assert torch.equal(hot.X, Dataset.from_frame(present, "y", one_hot=True).X)


@pytest.mark.parametrize("wrong", [-1.0, 0.5, 70_000.0])
def test_codes_are_whole_numbers_from_0(wrong: float) -> None:
    with pytest.raises(DataError, match=r"codes 0, 1, 2, .* in column 1, .* row 2"):
        Dataset([[0.5, 1.0], [0.5, 0.0], [0.5, wrong]], [0.0, 1.0, 2.0], categorical=[1])
    with pytest.raises(SettingError, match="as categorical"):
        Dataset([[0.5, 1.0]], [0.0], categorical=[2])
    with pytest.raises(UnknownName, match="the name of a categorical column"):
        Dataset(frame()[["size", "age"]].fillna(0.0), frame()["y"], categorical=["colour"])
    with pytest.raises(SettingError, match="the levels of every categorical column"):
        Dataset([[0.5, 1.0]], [0.0], categorical=[1], levels=[["a"], ["b"]])


def test_standardising_ignores_missing_values_and_leaves_codes() -> None:
    data = kept()
    scaled, scaler = data.standardised()
    present = data.X[~data.X[:, 0].isnan(), 0]
    torch.testing.assert_close(scaler.x_mean[0], present.mean())
    torch.testing.assert_close(scaler.x_sd[0], present.std(correction=0))
    assert torch.equal(scaled.X[:, 2:].nan_to_num(-1.0), data.X[:, 2:].nan_to_num(-1.0))
    assert torch.equal(scaled.X.isnan(), data.X.isnan())
    assert scaler.back(scaled).same_rows(data)
    nothing = Dataset([[NAN, 1.0], [NAN, 2.0]], [0.0, 1.0], missing="keep")
    with pytest.warns(ppgp.errors.DataWarning, match="column 0 of X constant"):
        _, scaler = nothing.standardised()
    assert (float(scaler.x_mean[0]), float(scaler.x_sd[0])) == (0.0, 1.0)


def test_other_models_refuse_them() -> None:
    with pytest.raises(DataError, match="finite numbers in X, got NaN"):
        ppgp.fit(models.LogisticRegression(), replace(kept(), categorical=None, levels=None))
    whole = Dataset.from_frame(frame().dropna(), "y", categories="codes")
    with pytest.raises(NotApplicable, match="a model that takes columns of codes"):
        ppgp.fit(models.LogisticRegression(), whole)
    plain = Dataset(whole.X, whole.y, missing="keep")
    posterior = ppgp.fit(models.LogisticRegression(), plain, inference.MAP(), progress=False)
    with pytest.raises(DataError, match="finite numbers in X"):
        posterior.predict([[NAN, 0.0, 0.0, 0.0]])


def test_a_model_that_takes_them_predicts_frames_arrays_and_tables(tmp_path: Any) -> None:
    data, table = kept(), frame()
    posterior = ppgp.fit(Filled(), data, inference.MAP(), progress=False)
    expected = posterior.predict(data.X).probabilities
    assert bool(torch.isfinite(expected).all())
    inputs = table.drop(columns="y")
    for rows in (inputs, inputs[["grade", "size", "colour", "age"]], data, table):
        assert torch.equal(posterior.predict(rows).probabilities, expected)
    posterior.save(tmp_path / "kept.ppgp")
    again = ppgp.load_posterior(tmp_path / "kept.ppgp", model=Filled())
    assert again.data.levels == data.levels
    assert torch.equal(again.predict(inputs).probabilities, expected)
    with pytest.raises(DataError, match=r"codes 0, 1, 2, .* in column grade"):
        posterior.predict([[1.0, 1.0, 0.0, -2.0]])


def test_new_levels_are_new_codes_and_other_codes_are_translated() -> None:
    data, table = kept(), frame()
    table.loc[0, "colour"] = "violet"
    names, levels = data.feature_names, data.levels_by_name
    rows = in_order(table, names, "y", levels=levels)
    assert float(rows[0, 2]) == 3.0
    assert torch.equal(rows[1:].nan_to_num(-1.0), data.X[1:].nan_to_num(-1.0))
    other = Dataset.from_frame(
        table[table["colour"] != "blue"], "y", missing="keep", categories="codes"
    )
    assert other.levels_by_name["colour"] == ("green", "red", "violet")
    there = in_order(other, names, levels=levels)
    here = in_order(table[table["colour"] != "blue"], names, "y", levels=levels)
    assert torch.equal(there.nan_to_num(-1.0), here.nan_to_num(-1.0))


def test_rows_with_missing_values_are_recognised() -> None:
    rng = np.random.default_rng(0)
    train = rng.normal(size=(200, 3))
    train[rng.random(train.shape) < 0.2] = NAN
    fresh = rng.normal(size=(30, 3))
    fresh[:, 0] = NAN
    found = same_rows(train, np.concatenate([train[:20], fresh]))
    complete = ~np.isnan(train[:20]).all(1)
    assert found[:20][complete].all()
    assert not found[20:].any()
    data = kept()
    assert data.same_rows(data.rows(slice(None)))
    assert not data.same_rows(Dataset(data.X.nan_to_num(0.0), data.y))


def test_a_file_is_loaded_with_both(tmp_path: Any) -> None:
    frame().to_csv(tmp_path / "table.csv", index=False)
    data = ppgp.load(tmp_path / "table.csv", "y", missing="keep", categories="codes")
    assert data.categorical == ("colour", "grade")
    assert int(data.X.isnan().sum()) == 3
    with pytest.raises(DataError, match="text or dates in columns colour, grade"):
        ppgp.load(tmp_path / "table.csv", "y", missing="keep")
