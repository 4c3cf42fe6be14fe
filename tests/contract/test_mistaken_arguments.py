"""Mistaken arguments are refused in one sentence: expected, received, what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import ppgp
from ppgp import Dataset, conformal, inference, models
from ppgp.cli.main import app
from ppgp.conformal.cross import cross_calibrate
from ppgp.data import read_frame
from ppgp.errors import DataError, NotApplicable, PpgpError, SettingError, StorageError, UnknownName
from ppgp.posterior.loading import load_posterior
from ppgp.posterior.posterior import Posterior
from ppgp.runtime import memory

pytestmark = pytest.mark.usefixtures("types_unchecked")

X = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64)[:, None] * torch.tensor(
    [1.0, -0.5], dtype=torch.float64
)
Y = torch.sin(3 * X[:, 0])
DATA = Dataset(X, Y, feature_names=("a", "b"), target_name="y")
LINEAR = models.LinearRegression()


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return ppgp.fit(LINEAR, DATA, inference.Laplace(draws=20), progress=False)


def refusal(kind: type[PpgpError], call: Callable[[], Any], *facts: str) -> str:
    """Return the error message, which contains the facts."""
    with pytest.raises(kind) as caught:
        call()
    sentence = str(caught.value)
    assert [fact for fact in facts if fact not in sentence] == [], sentence
    return sentence


NO_SCORES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "class": (conformal.Absolute, ("the class Absolute", "call it: Absolute()")),
    "name": ("absolute", ("'absolute'", "write conformal.Absolute()")),
    "other name": ("abs", ("'abs'", "ppgp.conformal")),
    "number": (0.9, ("a float",)),
}


@pytest.mark.parametrize(("score", "facts"), NO_SCORES.values(), ids=NO_SCORES)
def test_objects_that_are_not_scores(
    score: Any, facts: tuple[str, ...], posterior: Posterior
) -> None:
    prediction = posterior.predict(X)
    refusal(NotApplicable, lambda: conformal.calibrate(score, prediction, Y), *facts)
    for online in (conformal.ACI, conformal.AgACI, conformal.PID):
        refusal(NotApplicable, lambda online=online: online(score, 0.9), *facts)
    refusal(NotApplicable, lambda: ppgp.compare({"p": posterior}, test=DATA, score=score), *facts)
    refusal(NotApplicable, lambda: cross_calibrate(LINEAR, DATA, score=score), *facts)


def test_objects_that_are_not_predictions() -> None:
    facts = ("a Prediction", "a Tensor", "posterior.predict(X)")
    refusal(NotApplicable, lambda: conformal.calibrate(conformal.Absolute(), X, Y), *facts)
    refusal(NotApplicable, lambda: conformal.ACI(conformal.Absolute())(X, Y), *facts)


def test_posteriors_that_cannot_be_compared(posterior: Posterior) -> None:
    refusal(SettingError, lambda: ppgp.compare([posterior], test=DATA), "a list", "name")
    refusal(
        SettingError, lambda: ppgp.compare(posterior, test=DATA), "a Posterior", "{name: posterior}"
    )
    refusal(SettingError, lambda: ppgp.compare({"p": DATA}), "a Dataset as 'p'")
    refusal(
        DataError, lambda: ppgp.compare({"p": posterior}, test=X), "a Dataset as test", "a Tensor"
    )
    refusal(
        DataError,
        lambda: ppgp.compare({"p": posterior}, test=DATA, calibration=(X, Y)),
        "calibration",
        "a tuple",
    )
    refusal(
        SettingError,
        lambda: ppgp.compare({"p": posterior}, reference=3),
        "a name, a Posterior",
        "an int",
    )


def test_starting_values_are_a_posterior_or_numbers() -> None:
    for init, name in (({"coef": 2.0}, "a dict"), ("coef", "a str"), ([None], "a list")):
        refusal(
            SettingError,
            lambda init=init: ppgp.fit(LINEAR, DATA, inference.MAP(), init=init, progress=False),
            "a Posterior or z",
            name,
        )


def test_the_name_of_a_method_is_not_a_method() -> None:
    refusal(NotApplicable, lambda: ppgp.fit(LINEAR, DATA, "map"), "'map'", "inference.MAP()")
    refusal(NotApplicable, lambda: ppgp.fit(LINEAR, DATA, "dvi"), "'dvi'", "ppgp.recipes.method")


def one(x: torch.Tensor) -> None: ...


def other(x: torch.Tensor) -> None: ...


def test_a_program_other_than_that_of_the_file(posterior: Posterior, tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    copy = replace(posterior, stats={"program": one})
    copy.save(path)
    refusal(StorageError, lambda: load_posterior(path), "'one'", "no model")
    refusal(StorageError, lambda: load_posterior(path, model=other), "'one'", "got 'other'")
    refusal(StorageError, lambda: load_posterior(path, model=LINEAR), "'one'", "a LinearRegression")
    assert load_posterior(path, model=one).stats["program"] is one


def test_columns_that_are_missing_in_new_rows(posterior: Posterior) -> None:
    frame = pd.DataFrame(X.numpy(), columns=["a", "b"])
    sentence = refusal(
        UnknownName,
        lambda: posterior.predict(frame[["a"]]),
        "columns a, b of the training rows",
        "no column b",
    )
    assert "rename" not in sentence
    refusal(
        UnknownName,
        lambda: posterior.predict(frame.rename(columns={"b": "B"})),
        "no column b",
        "rename 'B'",
    )
    refusal(
        UnknownName,
        lambda: posterior.predict(Dataset(X, Y, feature_names=("a", "c"))),
        "no column b",
        "columns a, c",
    )


HEADERS = {
    "semicolons": ("t.csv", "a;b;y\n1;2;3\n", ("commas", "';'")),
    "semicolons and decimal commas": ("t.csv", "a;y\n1,5;2,5\n", ("commas", "';'")),
    "tabs": ("t.csv", "a\tb\ty\n1\t2\t3\n", ("commas", "a tab")),
    "commas": ("t.tsv", "a,b,y\n1,2,3\n", ("tabs", "','")),
    "a last separator": ("t.csv", "a,b,y,\n1,2,3,\n", ("header ends in a separator",)),
    "a last separator, quoted names": (
        "t.csv",
        '"a","b","y",\n1,2,3,\n',
        ("header ends in a separator",),
    ),
    "one column": ("t.csv", "a\n1\n1,2\n", ("1 field in", "2 in row 1")),
}


@pytest.mark.parametrize(("name", "content", "facts"), HEADERS.values(), ids=HEADERS)
def test_headers(name: str, content: str, facts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    refusal(DataError, lambda: read_frame(tmp_path / name), name, *facts)


def test_a_table_is_not_a_saved_posterior(tmp_path: Path) -> None:
    path = tmp_path / "good.csv"
    path.write_text("alpha,beta,y\n1,2,3\n")
    refusal(
        StorageError,
        lambda: load_posterior(path),
        "good.csv",
        "another kind of file",
        "posterior.save",
    )


def test_file_formats_of_predictions(posterior: Posterior, tmp_path: Path) -> None:
    posterior.save(tmp_path / "p.safetensors")
    pd.DataFrame(X.numpy(), columns=["a", "b"]).to_csv(tmp_path / "new.csv", index=False)

    def predict(out: str) -> Any:
        command = [
            "predict",
            str(tmp_path / "p.safetensors"),
            str(tmp_path / "new.csv"),
            "--out",
            out,
        ]
        return CliRunner().invoke(app, command)

    for name in ("p.txt", "p"):
        done = predict(str(tmp_path / name))
        assert isinstance(done.exception, SettingError)
        assert ".csv or .parquet" in str(done.exception)
        assert not (tmp_path / name).exists()
    done = predict(str(tmp_path / "p.CSV"))
    assert done.exit_code == 0, done.output
    assert "guarantee: none beyond the model" in done.output
    assert len(pd.read_csv(tmp_path / "p.CSV")) == len(X)
    predict(str(tmp_path / "p.PARQUET"))
    assert np.isfinite(pd.read_parquet(tmp_path / "p.PARQUET").to_numpy()).all()
    assert predict("/dev/null").exit_code == 0


def test_names_and_numbers(posterior: Posterior) -> None:
    assert "did you mean 'map'" in str(UnknownName("method", "MAP", ["nuts", "map"]))
    assert "a units" not in refusal(
        UnknownName, lambda: posterior.draws_in("dat"), "'dat'", "model, data"
    )
    assert [memory.readable_size(size) for size in (6.4e8, 1.28e10, 2e12, 3.5e15)] == [
        "640 MB",
        "12.8 GB",
        "2 TB",
        "3.5 PB",
    ]


def test_groups_by_number_and_effects_by_name() -> None:
    one: Any = 1
    refusal(SettingError, lambda: models.Varying(one), "as text, got 1", "Varying('1 + floor')")
    table = Dataset(X, Y, groups={"g": [0, 1, 2] * 4})
    model = models.GLM(groups={"g": models.Varying()})
    fitted = ppgp.fit(model, table, inference.MAP(), progress=False)
    name: Any = "g"
    refusal(SettingError, lambda: fitted.effects(name), "as seed, got 'g'", "write effects()['g']")


def test_a_list_as_the_target_of_a_file_is_referred_to_outputs() -> None:
    targets: Any = ["nitrate", "depth"]
    refusal(
        DataError, lambda: ppgp.load("wells.csv", target=targets), "nitrate", "Outputs.from_frame"
    )


@pytest.mark.parametrize("classes", [1, 2.0, "three", True])
def test_numbers_of_classes(classes: Any) -> None:
    facts = ("at least 2 classes in SoftmaxRegression", repr(classes))
    refusal(SettingError, lambda: models.SoftmaxRegression(classes=classes), *facts)


def test_a_number_in_place_of_a_name() -> None:
    number: Any = 3
    refusal(UnknownName, lambda: models.LatentGP(approximation=number), "got 3: known: laplace")


def test_objects_of_the_library_in_place_of_arrays(posterior: Posterior) -> None:
    prediction = posterior.predict(DATA)
    region = prediction.interval(0.9)
    for call in (
        lambda: ppgp.metrics.rmse(prediction, DATA),
        lambda: prediction.crps(DATA),
        lambda: region.covers(DATA),
    ):
        refusal(DataError, call, "numbers as y, got a Dataset", "pass its .y")
    observed = "got a Prediction: pass the observed y"
    refusal(DataError, lambda: ppgp.metrics.coverage(region, prediction), observed)


def test_tables_by_names_of_columns() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    name, names, fractions = cast(Any, "y"), cast(Any, "ab"), cast(Any, ["0.6", [0.4]])
    refusal(DataError, lambda: Dataset(frame, name), "'y'", "Dataset.from_frame(table, 'y')")
    refusal(DataError, lambda: Dataset(X, Y, names), "feature_names, got 'ab'")
    refusal(SettingError, lambda: Dataset.from_frame(frame, cast(Any, frame["y"])), "a Series")
    with pytest.raises(TypeError, match="positional"):
        cast(Any, Dataset.from_frame)(frame, "y", ["a"])
    for each in fractions:
        refusal(
            SettingError, lambda each=each: DATA.split(each), "numbers as fractions", repr(each)
        )
    refusal(SettingError, lambda: DATA.split(0.5, seed=name), "whole number", "as seed, got 'y'")


def test_likelihoods_and_tables_in_the_wrong_place() -> None:
    likelihood: Any = ppgp.likelihoods.Bernoulli()
    for model in (models.GP, models.SVGP):
        refusal(SettingError, lambda model=model: model(likelihood), "name it: likelihood=")
    refusal(SettingError, lambda: models.GP(ppgp.kernels.RBF(), likelihood), "name it: likelihood=")
    how = inference.MAP()
    refusal(NotApplicable, lambda: ppgp.fit(cast(Any, DATA), cast(Any, LINEAR), how), "a Dataset")
    refusal(NotApplicable, lambda: ppgp.fit(likelihood, DATA, how), "models.GLM(likelihood)")


def test_a_level_of_predict(posterior: Posterior) -> None:
    refusal(NotApplicable, lambda: posterior.predict(DATA, level=0.9), ".interval(level)")
