"""scikit-learn's own checks, a pipeline, and agreement with ppgp.fit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn_checks import number_passed

import ppgp
from ppgp import inference, models
from ppgp.estimators import ProbabilisticClassifier, ProbabilisticRegressor

CHECKED = {
    "regressor": ProbabilisticRegressor("linear", "map"),
    "positive": ProbabilisticRegressor("glm", "map", likelihood="gamma"),
    "two classes": ProbabilisticClassifier("logistic", "map"),
    "classes": ProbabilisticClassifier(how="map"),
    "ordered": ProbabilisticClassifier("ordinal", "map"),
}


@pytest.mark.filterwarnings(
    "ignore::ppgp.errors.PpgpWarning", "ignore::sklearn.exceptions.SkipTestWarning"
)
@pytest.mark.parametrize(
    "kind",
    [
        "regressor",
        "two classes",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("positive", "classes", "ordered")
        ),
    ],
)
def test_scikit_learn_accepts_the_estimator(kind: str) -> None:
    assert number_passed(CHECKED[kind]) > 30


def test_a_pipeline_cross_validates() -> None:
    X, y = load_diabetes(return_X_y=True)
    scores = cross_val_score(
        make_pipeline(StandardScaler(), ProbabilisticRegressor("linear", "map")), X, y, cv=3
    )
    assert np.all(scores > 0.4)


def test_the_estimator_agrees_with_fit_and_predict() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    estimator = ProbabilisticClassifier("logistic", "map").fit(X, y)
    posterior = ppgp.fit(
        models.LogisticRegression(), ppgp.Dataset(X, y), inference.MAP(), progress=False
    )
    assert np.allclose(estimator.predict_proba(X), posterior.predict(X).probabilities.numpy())
    regressor = ProbabilisticRegressor("linear", "laplace").fit(X, X[:, 0])
    mean, sd = regressor.predict(X, return_std=True)
    assert mean.shape == sd.shape == (len(X),)


def table(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    ("model", "method"),
    [
        pytest.param("ngboost", inference.NaturalGradientBoosting, marks=pytest.mark.slow),
        ("deep-ensemble", inference.Ensemble),
        ("mc-dropout", inference.MCDropout),
    ],
    ids=str,
)
def test_without_how_a_model_is_fitted_by_its_own_method(model: object, method: type) -> None:
    X, y = table()
    fitted = ProbabilisticRegressor(model).fit(X, y)
    assert type(fitted.posterior_.how) is method
    mean = fitted.predict(X)
    assert mean.std() > 0.3  # no constant distribution
    assert np.corrcoef(mean, np.sin(2 * X[:, 0]))[0, 1] > 0.8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_the_default_of_fit_is_the_own_method_too() -> None:
    X, y = table(40)
    assert ProbabilisticRegressor("linear").fit(X, y).posterior_.how == inference.MAP()
    assert ProbabilisticClassifier().fit(X, y > 0).posterior_.how == inference.Laplace()
    posterior = ppgp.fit(models.Boosted(), ppgp.Dataset(X, y), progress=False)
    assert posterior.how == inference.NaturalGradientBoosting()
    assert np.array_equal(
        ProbabilisticRegressor(models.Boosted()).fit(X, y).predict(X), posterior.predict(X).mean
    )


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_boosting_classifies() -> None:
    X, y = table(120)
    labels = np.where(y > 0, "yes", "no")
    how = inference.NaturalGradientBoosting(steps=30)
    for model in ("ngboost-classifier", "Boosted(Bernoulli())"):
        fitted = ProbabilisticClassifier(model, how).fit(X, labels)
        assert list(fitted.classes_) == ["no", "yes"]
        assert fitted.score(X, labels) > 0.8
        assert np.allclose(fitted.predict_proba(X).sum(1), 1.0)


@pytest.mark.parametrize("model", ["ngboost", "deep-ensemble", "Boosted(Poisson())"])
def test_labels_are_refused_where_y_is_a_number(model: str) -> None:
    X, y = table()
    with pytest.raises(ppgp.errors.DataError, match=r"labels no, yes: pass likelihood=Bernoulli"):
        ProbabilisticClassifier(model).fit(X, np.where(y > 0, "yes", "no"))
