"""scikit-learn's own checks, a pipeline, and agreement with ppgp.fit."""

from __future__ import annotations

from unittest import SkipTest

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import ppgp
from ppgp import inference, models
from ppgp.interfaces.estimators import ProbabilisticClassifier, ProbabilisticRegressor

CHECKED = [ProbabilisticRegressor("linear", "map"), ProbabilisticClassifier("logistic", "map")]


@pytest.mark.filterwarnings(
    "ignore::ppgp.errors.PpgpWarning", "ignore::sklearn.exceptions.SkipTestWarning"
)
@pytest.mark.parametrize("estimator", CHECKED, ids=lambda e: type(e).__name__)
def test_scikit_learn_accepts_the_estimator(estimator: object) -> None:
    passed = 0
    for instance, check in estimator_checks_generator(estimator):
        try:
            check(instance)
            passed += 1
        except SkipTest:  # the check does not apply, or needs a package that is not installed
            continue
    assert passed > 30


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
