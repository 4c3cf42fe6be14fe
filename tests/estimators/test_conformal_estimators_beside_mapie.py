"""Intervals and label sets of the conformal estimators are those of MAPIE, to 1e-12.

The definitions differ where MAPIE randomises APS by a generator of its own, and where its CQR
corrects the two ends apart, as it does unless ``symmetric_correction`` is set.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor
from sklearn.model_selection import KFold

from ppgp.estimators import ConformalClassifier, ConformalRegressor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    regression = pytest.importorskip("mapie.regression")
    classification = pytest.importorskip("mapie.classification")
pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(120, 3)), RNG.normal(size=(60, 3))
Y = 10 + X[:, 0] + (0.3 + np.abs(X[:, 1])) * RNG.normal(size=120)
LABELS = (X[:, 0] + 0.7 * RNG.normal(size=120) > 0).astype(int) + (X[:, 1] > 0.8)


def same(region: Any, wanted: np.ndarray) -> None:
    found = np.stack(list(map(np.asarray, region)), 1)
    np.testing.assert_allclose(found, wanted[:, :, 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_split(level: float) -> None:
    fit = LinearRegression().fit(X[:60], Y[:60])
    peer = regression.SplitConformalRegressor(fit, confidence_level=level, prefit=True)
    peer.conformalize(X[60:], Y[60:])
    found = ConformalRegressor(FrozenEstimator(fit), level=level).fit(X[60:], Y[60:])
    points, wanted = peer.predict_interval(NEW)
    same(found.predict_interval(NEW), wanted)
    np.testing.assert_array_equal(found.predict(NEW), points)


@pytest.mark.parametrize(("folds", "level"), [(5, 0.5), (5, 0.8), (7, 0.9), (120, 0.8)])
def test_cv_plus_and_jackknife_plus(folds: int, level: float) -> None:
    splitter = KFold(folds)
    peer = regression.CrossConformalRegressor(
        LinearRegression(), confidence_level=level, method="plus", cv=splitter
    )
    peer.fit_conformalize(X, Y)
    _, wanted = peer.predict_interval(NEW)
    same(
        ConformalRegressor(LinearRegression(), "cv+", cv=splitter)
        .fit(X, Y)
        .predict_interval(NEW, level=level),
        wanted,
    )
    if folds == len(X):
        jackknife = ConformalRegressor(LinearRegression(), "jackknife+", level=level)
        same(jackknife.fit(X, Y).predict_interval(NEW), wanted)


def test_conformalised_quantile_regression() -> None:
    fits = [QuantileRegressor(quantile=p, alpha=0).fit(X[:60], Y[:60]) for p in (0.1, 0.9, 0.5)]
    peer = regression.ConformalizedQuantileRegressor(fits, confidence_level=0.8, prefit=True)
    peer.conformalize(X[60:], Y[60:])
    _, wanted = peer.predict_interval(NEW, symmetric_correction=True)
    pair = (FrozenEstimator(fits[0]), FrozenEstimator(fits[1]))
    same(ConformalRegressor(pair, level=0.8).fit(X[60:], Y[60:]).predict_interval(NEW), wanted)


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_label_sets(level: float) -> None:
    fit = LogisticRegression().fit(X[:60], LABELS[:60])
    peer = classification.SplitConformalClassifier(
        fit, confidence_level=level, conformity_score="lac", prefit=True
    )
    peer.conformalize(X[60:], LABELS[60:])
    _, wanted = peer.predict_set(NEW)
    found = ConformalClassifier(FrozenEstimator(fit), level=level).fit(X[60:], LABELS[60:])
    labels = found.predict_set(NEW).labels
    assert labels is not None
    assert np.array_equal(labels.numpy(), wanted[:, :, 0])
