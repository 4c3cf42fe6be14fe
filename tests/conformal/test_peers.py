"""Comparison with MAPIE and crepes on shared inputs, with the cases where results differ."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.linear_model import LinearRegression as OLS

import ppgp
from ppgp import inference, models, priors
from ppgp.conformal import (
    LAC,
    Absolute,
    Normalized,
    calibrate,
    full_interval,
    leave_one_out_parts,
    predictive_system,
)
from ppgp.data import Dataset
from ppgp.posterior.prediction import Prediction

crepes = pytest.importorskip("crepes")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    mapie_regression = pytest.importorskip("mapie.regression")
    mapie_classification = pytest.importorskip("mapie.classification")
    mapie_scores = pytest.importorskip("mapie.conformity_scores")
pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(60, 1)), RNG.normal(size=(7, 1))
MEAN, SD = np.sin(X[:, 0]), 0.5 + np.abs(X[:, 0])
Y = MEAN + SD * RNG.normal(size=60)


class Sine(RegressorMixin, BaseEstimator):
    """A regressor whose predictions need no fit."""

    def fit(self, X: Any, y: Any) -> Sine:
        self.fitted_ = True
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.sin(np.asarray(X)[:, 0])


def predictive(X: np.ndarray) -> Prediction:
    return Prediction(
        dist.Normal(
            torch.as_tensor(np.sin(X[:, 0]))[None], torch.as_tensor(0.5 + np.abs(X[:, 0]))[None]
        )
    )


def both(region: Any) -> np.ndarray:
    return torch.stack([region.lower, region.upper], 1).numpy()


@pytest.mark.parametrize(("n", "level"), [(60, 0.9), (60, 0.8), (49, 0.5), (20, 0.9)])
def test_split_intervals_equal_mapie(n: int, level: float) -> None:
    peer = mapie_regression.SplitConformalRegressor(
        Sine().fit(X, Y), confidence_level=level, prefit=True
    )
    peer.conformalize(X[:n], Y[:n])
    _, wanted = peer.predict_interval(NEW)
    found = calibrate(Absolute(), predictive(X[:n]), Y[:n])(predictive(NEW), level=level)
    np.testing.assert_allclose(both(found), wanted[:, :, 0], rtol=1e-12)


@pytest.mark.parametrize("n", [30, 60])
def test_normalised_intervals_equal_crepes(n: int) -> None:
    peer = crepes.ConformalRegressor().fit((Y - MEAN)[:n], sigmas=SD[:n])
    wanted = peer.predict_int(np.sin(NEW[:, 0]), sigmas=0.5 + np.abs(NEW[:, 0]), confidence=0.8)
    found = calibrate(Normalized(), predictive(X[:n]), Y[:n])(predictive(NEW), level=0.8)
    np.testing.assert_allclose(both(found), wanted, rtol=1e-12)


def test_nine_rows_suffice_for_level_0_9_unlike_in_crepes_and_mapie() -> None:
    """Our set is finite and valid, where crepes gives the whole line and MAPIE refuses."""
    found = calibrate(Absolute(), predictive(X[:9]), Y[:9])(predictive(NEW), level=0.9)
    assert not bool(found.infinite.any())
    theirs = (
        crepes.ConformalRegressor()
        .fit((Y - MEAN)[:9])
        .predict_int(np.sin(NEW[:, 0]), confidence=0.9)
    )
    assert bool(np.isinf(theirs).all())
    peer = mapie_regression.SplitConformalRegressor(
        Sine().fit(X, Y), confidence_level=0.9, prefit=True
    )
    with pytest.raises(ValueError, match=r"[Nn]umber of samples|too low|confidence"):
        peer.conformalize(X[:9], Y[:9]).predict_interval(NEW)


def test_p_values_of_a_predictive_system_equal_crepes() -> None:
    peer = crepes.ConformalPredictiveSystem().fit((Y - MEAN)[:50], sigmas=SD[:50])
    at = np.sin(NEW[:, 0]) + 0.3
    wanted = peer.predict_p(np.sin(NEW[:, 0]), at, sigmas=0.5 + np.abs(NEW[:, 0]), smoothing=False)
    system = predictive_system(predictive(X[:50]), Y[:50])(predictive(NEW))
    np.testing.assert_allclose(
        system.cdf(at, u=1.0).numpy(), np.asarray(wanted).ravel(), rtol=1e-12
    )


def test_full_conformal_of_a_gp_equals_jackknife_plus_of_mapie_with_n_refits() -> None:
    kernel = 1.3 * sk.RBF(0.7) + sk.WhiteKernel(0.2)
    gp = GaussianProcessRegressor(kernel, optimizer=None)
    rows, targets = X[:25], Y[:25]
    peer = mapie_regression.CrossConformalRegressor(
        gp,
        confidence_level=0.8,
        conformity_score=mapie_scores.StdConformityScore(),
        method="plus",
        cv=25,
    )
    peer.fit_conformalize(rows, targets)
    _, wanted = peer.predict_interval(NEW)
    C, K = kernel(rows), (1.3 * sk.RBF(0.7))(rows, NEW)
    parts = leave_one_out_parts(*(torch.as_tensor(v) for v in (C, targets, K, np.full(7, 1.5))))
    found = torch.stack(full_interval(parts, 0.8), 1).numpy()
    np.testing.assert_allclose(found, wanted[:, :, 0], rtol=1e-8, atol=1e-8)


def test_jackknife_plus_of_least_squares_equals_mapie() -> None:
    peer = mapie_regression.CrossConformalRegressor(
        OLS(), confidence_level=0.8, method="plus", cv=20
    )
    peer.fit_conformalize(X[:20], Y[:20])
    _, wanted = peer.predict_interval(NEW)
    flat = models.LinearRegression(weight=priors.Flat(), bias=priors.Flat(), noise=1.0)
    cross = ppgp.cross_calibrate(
        flat, Dataset(X[:20], Y[:20]), inference.MAP("newton"), Absolute(), folds=None
    )
    np.testing.assert_allclose(both(cross(NEW, level=0.8)), wanted[:, :, 0], rtol=1e-6, atol=1e-6)


class Softmax(ClassifierMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> Softmax:
        self.classes_ = np.arange(3)
        self.fitted_ = True
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        logits = np.asarray(X)[:, :1] * np.array([1.0, 0.0, -1.0])
        return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        return self.predict_proba(X).argmax(1)


def test_label_sets_equal_mapie() -> None:
    model = Softmax().fit(X, None)
    p = model.predict_proba(X)
    labels = np.array([RNG.choice(3, p=row) for row in p])
    peer = mapie_classification.SplitConformalClassifier(
        model, confidence_level=0.8, conformity_score="lac", prefit=True
    )
    peer.conformalize(X, labels)
    _, wanted = peer.predict_set(NEW)
    ours = [
        Prediction(dist.Categorical(probs=torch.as_tensor(model.predict_proba(v))[None]))
        for v in (X, NEW)
    ]
    found = calibrate(LAC(), ours[0], labels)(ours[1], level=0.8)
    assert found.labels is not None
    assert np.array_equal(found.labels.numpy(), wanted[:, :, 0])
