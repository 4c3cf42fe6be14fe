"""Data frames of tables, predictions and regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp import Dataset, Prediction, Region, conformal, inference, models
from ppgp.errors import SettingError

RNG = np.random.default_rng(4)


def rows(n: int = 12) -> pd.DataFrame:
    table = pd.DataFrame({"a": RNG.normal(size=n), "b": RNG.normal(size=n)})
    return table.assign(soil=["clay", "sand", "silt"] * (n // 3), label=["no", "yes"] * (n // 2))


def test_a_table_is_read_back_as_it_was() -> None:
    whole = rows().assign(
        site=["x", "y", "z"] * 4,
        tested=2.0,
        time=np.arange(12.0),
        name=[f"r{i}" for i in range(12)],
    )
    options = {"categories": "codes", "groups": ["site"], "ids": "name", "weights": "tested"}
    data = Dataset.from_frame(whole, "label", **options)
    table = data.to_frame()
    pd.testing.assert_frame_equal(table[list(whole)], whole, check_dtype=False)
    again = Dataset.from_frame(table, "label", **options)
    assert again.same_rows(data)
    assert again.feature_names == data.feature_names


def test_columns_without_names_are_numbered_and_keep_their_own_names() -> None:
    assert list(Dataset(np.zeros((2, 2)), [0.0, 1.0]).to_frame()) == ["x0", "x1", "y"]
    named = Dataset(np.zeros((2, 1)), [0.0, 1.0], feature_names=["y"], offset=[1.0, 2.0])
    table = named.to_frame()
    assert list(table) == ["y", "y_", "offset"]
    assert table["offset"].tolist() == [1.0, 2.0]


def test_missing_values_and_new_groups_are_empty_cells() -> None:
    data = Dataset(np.array([[np.nan], [1.0]]), [1.0, 2.0], missing="keep")
    assert data.to_frame().isna().to_numpy().tolist() == [[True, False], [False, False]]


def test_a_prediction_has_the_columns_of_its_file(tmp_path: Path) -> None:
    data = Dataset.from_frame(rows()[["a", "b"]], "b")
    draws = {
        "weight": torch.full((1, 3, 1), 0.5, dtype=torch.float64),
        "bias": torch.zeros(1, 3, dtype=torch.float64),
        "noise": torch.ones(1, 3, dtype=torch.float64),
    }
    fit = ppgp.Posterior(models.LinearRegression(), data, draws, inference.Laplace())
    new = rows()[["a"]]
    prediction = fit.predict(new)
    table = prediction.to_frame(0.8)
    file = fit.predict_to(new, tmp_path / "p.parquet", 0.8, progress=False)
    pd.testing.assert_frame_equal(table, pd.read_parquet(file), rtol=1e-12)
    assert list(table) == ["mean", "sd", "lower", "upper"]
    np.testing.assert_array_equal(table["upper"], prediction.interval(0.8).upper)
    with pytest.raises(SettingError, match="a level in"):
        prediction.to_frame(1.5)


def test_labels_have_a_probability_each_and_their_sets() -> None:
    p = torch.tensor([[0.9, 0.1], [0.4, 0.6]], dtype=torch.float64)
    prediction = Prediction(dist.Categorical(p[None]), classes=("no", "yes"))
    table = prediction.to_frame()
    assert list(table) == ["p(no)", "p(yes)"]
    np.testing.assert_allclose(table, p)
    region = conformal.LAC().region(prediction, torch.tensor(0.6), 0.9)
    assert region.to_frame()["set"].tolist() == [("no",), ("no", "yes")]
    codes = Region(0.9, "", labels=region.labels)
    assert codes.to_frame()["set"].tolist() == [(0,), (0, 1)]


def test_figures_that_are_not_known_are_left_out() -> None:
    known = Prediction.from_quantiles([[0.0, 1.0, 5.0], [4.0, 2.0, 3.0]], [0.1, 0.5, 0.9])
    assert known.to_frame(0.8).to_dict("list") == {"lower": [0.0, 2.0], "upper": [5.0, 4.0]}
    assert list(known.to_frame(0.9)) == []
    assert len(known.to_frame(0.9)) == 2


def test_a_region_keeps_its_guarantee() -> None:
    region = Region(0.9, "coverage >= 0.9", torch.zeros(2), torch.ones(2))
    table = region.to_frame()
    assert table.to_dict("list") == {"lower": [0.0, 0.0], "upper": [1.0, 1.0]}
    assert table.attrs == {"level": 0.9, "guarantee": "coverage >= 0.9"}
    pieces = (((0.0, 0.2), (0.8, 1.0)), ((0.0, 1.0),))
    unions = Region(0.9, "", torch.zeros(2), torch.ones(2), pieces=pieces)
    assert unions.to_frame()["pieces"].tolist() == list(pieces)


def test_sets_of_every_scheme_have_the_names_of_the_labels() -> None:
    p = torch.rand(30, 3, generator=torch.Generator().manual_seed(1)).softmax(-1)[None]
    y = torch.arange(30) % 3
    prediction = Prediction(dist.Categorical(p), classes=("u", "v", "w"))
    for score in (conformal.LAC(), conformal.APS()):
        region = ppgp.calibrate(score, prediction[:20], y[:20])(prediction[20:], level=0.5)
        assert region.classes == ("u", "v", "w")
