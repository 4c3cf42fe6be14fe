"""Several independent outputs in one call of ``fit``."""

from __future__ import annotations

from functools import cache
from typing import Any

import pandas as pd
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, models
from ppgp.data import Outputs
from ppgp.errors import DataError, NotApplicable, SettingError, StorageError, UnknownName
from ppgp.models import Multi

G = torch.Generator().manual_seed(0)
X = torch.rand(30, 2, generator=G, dtype=torch.float64)
Y = torch.stack([X.sin().sum(1), 50.0 - 7.0 * X[:, 0], X.prod(1)], 1)
NEW = torch.rand(4, 2, generator=G, dtype=torch.float64)
GP = models.GP(kernels.RBF(lengthscale=1.0), 0.01)


@cache
def fitted() -> Any:
    return ppgp.fit(Multi(GP), Outputs(X, Y, ["a", "b", "c"]), inference.MAP(), progress=False)


def test_each_output_is_the_fit_of_that_output_alone() -> None:
    fit = fitted()
    assert list(fit) == ["a", "b", "c"]
    assert len(fit) == 3
    for i, (name, prediction) in enumerate(fit.predict(NEW).items()):
        alone = ppgp.fit(GP, Dataset(X, Y[:, i]), inference.MAP(), progress=False)
        assert torch.equal(prediction.mean, alone.predict(NEW).mean)
        assert torch.equal(fit.latent(NEW)[name].std, alone.latent(NEW).std)
        assert torch.equal(fit.loo()[name].mean, alone.loo().mean)
        assert fit[name].data.target_name == name
        assert list(fit.summary()[name].index) == list(alone.summary().index)
    with pytest.raises(UnknownName, match="output"):
        fit["d"]


def test_each_output_may_have_a_model_of_its_own() -> None:
    both = Multi((GP, models.LinearRegression()))
    fit = ppgp.fit(both, Outputs(X, Y[:, [1, 0]]), inference.MAP(), progress=False)
    assert [type(one.model).__name__ for _, one in fit.items()] == ["GP", "LinearRegression"]
    assert fit.names == ("y0", "y1")
    with pytest.raises(DataError, match="one for each model"):
        ppgp.fit(both, Outputs(X, Y), inference.MAP())


def test_further_rows_reach_every_output() -> None:
    found = fitted().update(NEW, NEW @ torch.ones(2, 3, dtype=torch.float64))
    for i, name in enumerate("abc"):
        one = fitted()[name].update(NEW, NEW.sum(1))
        assert torch.equal(found[name].predict(X[:3]).mean, one.predict(X[:3]).mean), i
    with pytest.raises(DataError, match="different names"):
        fitted().update(NEW, NEW)


def test_it_is_saved_and_loaded(tmp_path: Any) -> None:
    path = fitted().save(tmp_path / "fit.safetensors")
    again = ppgp.MultiPosterior.load(path)
    assert again.names == fitted().names
    for name, prediction in again.predict(NEW).items():
        assert torch.equal(prediction.mean, fitted().predict(NEW)[name].mean)
    alone = fitted()["a"].save(tmp_path / "one.safetensors")
    with pytest.raises(StorageError, match="several outputs"):
        ppgp.MultiPosterior.load(alone)
    with pytest.raises(StorageError, match=r"MultiPosterior\.load"):
        ppgp.load_posterior(path)
    assert repr(again).startswith("<MultiPosterior of a, b, c")


def test_outputs_of_a_frame_keep_its_names_and_split_alike() -> None:
    frame = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "p": Y[:, 0], "q": Y[:, 1]})
    data = Outputs.from_frame(frame, ["p", "q"])
    assert data.names == ("p", "q")
    assert data.datasets[0].feature_names == ("u", "v")
    assert torch.equal(data.Y, Y[:, :2])
    one, other = data.split(0.5, seed=3)
    assert one.n + other.n == data.n
    assert all(torch.equal(d.X, one.X) for d in one.datasets)
    assert torch.equal(one.Y[:, 0], one.X.sin().sum(1))
    assert Outputs(frame[["u", "v"]], frame[["p", "q"]]).names == ("p", "q")
    assert "targets=p, q" in repr(data.rows([0, 1]))
    fit = ppgp.fit(Multi(GP), data, inference.MAP(), progress=False)
    shown = fit.predict(frame[["q", "v", "u"]])["q"].mean
    assert torch.equal(shown, fit["q"].predict(frame[["u", "v"]]).mean)
    assert torch.equal(shown, fit["q"].predict(X).mean)
    with pytest.raises(UnknownName, match="target"):
        Outputs.from_frame(frame, ["p", "w"])


def test_mistakes_are_explained() -> None:
    with pytest.raises(DataError, match=r"use Dataset\(X, y\)"):
        Outputs(X, Y[:, 0])
    with pytest.raises(DataError, match="different names"):
        Outputs(X, Y, ["a", "a", "b"])
    with pytest.raises(DataError, match="Outputs for Multi"):
        ppgp.fit(Multi(GP), Dataset(X, Y[:, 0]))
    with pytest.raises(NotApplicable, match="checkpoint="):
        ppgp.fit(Multi(GP), Outputs(X, Y), inference.MAP(), checkpoint="here")
    with pytest.raises(DataError, match="a Dataset"):
        ppgp.fit(GP, Outputs(X, Y))
    with pytest.raises(SettingError, match="in Multi"):
        Multi(())


def test_a_table_of_targets_is_referred_to_outputs() -> None:
    for call in (
        lambda: Dataset(X, Y),
        lambda: ppgp.fit(Multi(GP), Dataset(X, Y), inference.MAP()),
    ):
        with pytest.raises(DataError, match=r"data\.Outputs\(X, Y\) to models\.Multi"):
            call()


def test_a_list_of_models_is_a_tuple_of_them() -> None:
    several = Multi([GP, models.LinearRegression()])
    assert several == Multi((GP, models.LinearRegression()))
    assert several.models(2) == (GP, models.LinearRegression())
    with pytest.raises(SettingError, match=r"a model of ppgp\.models, or a list of them"):
        Multi([])
