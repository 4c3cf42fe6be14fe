"""Estimators on rows with missing values, categories and right-censored targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

from ppgp import Dataset, fit, likelihoods, models
from ppgp.errors import DataError, NotApplicable, PpgpError, SettingError, UnknownName
from ppgp.estimators import ProbabilisticClassifier, ProbabilisticRegressor, RBFFeatures
from ppgp.inference import NaturalGradientBoosting

HOW = NaturalGradientBoosting(steps=8, learning_rate=0.2, folds=None)
HOW_NLL = NaturalGradientBoosting("nll", steps=8, learning_rate=0.2, folds=None)
CENSORED = models.Boosted(likelihoods.LogNormal(noise=likelihoods.Predicted()))
pytestmark = pytest.mark.filterwarnings("ignore:the score at the rows held out")


def frame(n: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows with a missing number, categories, and y, which depends on both."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"colour": rng.choice(["red", "green", "blue"], n), "a": rng.normal(size=n)})
    y = 3.0 * np.asarray(X["colour"] == "green") + np.asarray(X["a"])
    X.loc[::10, "a"] = np.nan
    X["colour"] = X["colour"].astype("category")
    return X, y + 0.1 * rng.normal(size=n)


X, Y = frame()
CODES = np.column_stack([X["colour"].cat.codes, X["a"]])


def boosted(categorical: Any = "from_dtype", model: Any = "ngboost") -> ProbabilisticRegressor:
    return ProbabilisticRegressor(model, HOW, categorical_features=categorical)


def test_categories_and_missing_values_are_those_of_a_frame() -> None:
    data = Dataset.from_frame(X.assign(y=Y), "y", missing="keep", categories="codes")
    posterior = fit(models.Boosted(), data, HOW, progress=False)
    expected = posterior.predict(X).mean.numpy()
    found = boosted().fit(X, Y)
    assert np.array_equal(found.predict(X), expected)
    assert found.levels_ == {"colour": ("blue", "green", "red")}
    assert found.is_categorical_.tolist() == [True, False]
    assert found.posterior_.data.levels == data.levels
    assert np.array_equal(found.posterior_.predict(X).mean.numpy(), expected)


@pytest.mark.parametrize("categorical", [["colour"], [0], [True, False], np.array([True, False])])
def test_columns_by_name_number_or_mask(categorical: Any) -> None:
    expected = boosted().fit(X, Y).predict(X)
    text = X.assign(colour=X["colour"].astype(str))
    assert np.array_equal(boosted(categorical).fit(text, Y).predict(text), expected)
    if "colour" not in list(categorical):
        assert np.array_equal(boosted(categorical).fit(CODES, Y).predict(CODES), expected)


def test_new_rows_may_hold_other_categories() -> None:
    found = boosted().fit(X, Y)
    few = X.iloc[5:8].copy()
    few["colour"] = few["colour"].cat.remove_unused_categories()
    assert np.array_equal(found.predict(few), found.predict(X)[5:8])
    few["colour"] = ["pink", None, "red"]
    assert np.isfinite(found.predict(few)).all()


@pytest.mark.parametrize(
    ("categorical", "kind", "match"),
    [
        (["color"], UnknownName, "did you mean 'colour'"),
        ("colour", SettingError, r"write \['colour'\]"),
        ([2], SettingError, "columns 0 to 1"),
        ([True], SettingError, "a mask of 2 columns"),
        ([0.5], SettingError, "by name, number or mask"),
        (0, SettingError, "by name, number or mask"),
    ],
)
def test_columns_that_there_are_not(categorical: Any, kind: type[PpgpError], match: str) -> None:
    with pytest.raises(kind, match=match):
        boosted(categorical).fit(X, Y)


@pytest.mark.parametrize("model", ["linear", models.LinearRegression()])
def test_models_that_take_neither(model: Any) -> None:
    with pytest.raises(ValueError, match="NaN"):
        boosted(None, model).fit(CODES, Y)
    with pytest.raises(NotApplicable, match="columns of codes"):
        boosted([0], model).fit(CODES[:, :1], Y)
    numbers = X[["colour"]].apply(lambda column: column.cat.codes.astype("category"))
    assert not ProbabilisticRegressor(model, "map").fit(numbers, Y).is_categorical_.any()
    assert not get_tags(boosted(None, model)).input_tags.allow_nan


def test_tags_say_whether_nan_is_taken() -> None:
    assert get_tags(boosted()).input_tags.allow_nan
    assert get_tags(ProbabilisticClassifier("ngboost-classifier")).input_tags.allow_nan
    assert not get_tags(boosted(None, "no such model")).input_tags.allow_nan
    assert clone(boosted(["colour"])).categorical_features == ["colour"]


def test_a_classifier_takes_them_too() -> None:
    labels = np.where(Y > 1, "high", "low")
    found = ProbabilisticClassifier("ngboost-classifier", HOW).fit(X, labels)
    assert found.score(X, labels) > 0.9


def times(flags: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.where(flags, 0.5, 1.0) * np.exp(Y)


def test_right_censored_targets() -> None:
    flags = np.arange(len(Y)) % 4 == 0
    found = ProbabilisticRegressor(CENSORED, HOW_NLL).fit(CODES, times(flags), right_censored=flags)
    data = Dataset(CODES, times(flags), missing="keep", right_censored=flags)
    posterior = fit(CENSORED, data, HOW_NLL, progress=False)
    assert np.array_equal(found.predict(CODES), posterior.predict(CODES).mean)
    without = ProbabilisticRegressor(CENSORED, HOW_NLL).fit(CODES, times(flags))
    assert found.predict(CODES).mean() > without.predict(CODES).mean()
    with pytest.raises(NotApplicable, match="right-censored"):
        ProbabilisticRegressor("linear", "map").fit(CODES[:, :1], Y, right_censored=flags)


def test_flags_follow_the_rows_of_cross_validation() -> None:
    flags = np.arange(len(Y)) % 4 == 0
    scores = cross_val_score(
        ProbabilisticRegressor(CENSORED, HOW_NLL),
        CODES,
        times(flags),
        cv=2,
        params={"right_censored": pd.Series(flags, name="alive")},
    )
    assert np.isfinite(scores).all()


def test_columns_of_text_are_no_categories_unless_named() -> None:
    text = X.assign(colour=X["colour"].astype(str))
    message = r"column 'colour', got 'blue': make it \.astype\('category'\), or name it in categ"
    with pytest.raises(ValueError, match=message):
        boosted().fit(text, Y)


DAYS = pd.date_range("2020-01-01", periods=len(Y))
TEXT = pd.DataFrame({"a": np.asarray(X["a"].fillna(0.0)), "b": np.asarray(X["colour"], dtype=str)})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TEXT, "column 'b', got '(red|green|blue)': encode it, for example by OneHotEncoder"),
        (TEXT.astype({"b": "category"}), "column 'b', got '(red|green|blue)': encode it"),
        (TEXT.assign(b=DAYS), "column 'b', got Timestamp.*: make it a number"),
        (TEXT[["a"]].assign(b=[pd.Timedelta(1)] * len(Y)), "column 'b', got Timedelta"),
    ],
    ids=["text", "categories", "dates", "durations"],
)
def test_a_column_without_numbers_is_named(table: pd.DataFrame, message: str) -> None:
    for estimator in (ProbabilisticRegressor("linear", "map"), RBFFeatures()):
        with pytest.raises(DataError, match=message):
            estimator.fit(table, Y)
    fitted = ProbabilisticRegressor("linear", "map").fit(TEXT.assign(b=TEXT["a"] ** 2), Y)
    with pytest.raises(DataError, match=message):
        fitted.predict(table)


def test_numbers_in_columns_of_objects_are_numbers() -> None:
    table = TEXT.assign(b=np.arange(len(Y)) % 3)
    expected = ProbabilisticRegressor("linear", "map").fit(table, Y).predict(table)
    for kind in (object, "category", "Int64"):
        other = table.astype({"b": kind})
        found = ProbabilisticRegressor("linear", "map").fit(other, Y).predict(other)
        np.testing.assert_allclose(found, expected)
