"""Intervals, quantiles, draws, options inside models and metadata of the own estimators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from jaxtyping import config
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn_checks import number_passed

import ppgp
from ppgp import errors, inference, kernels, likelihoods, models, priors
from ppgp.estimators import (
    ProbabilisticClassifier,
    ProbabilisticRegressor,
    RBFFeatures,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(120, 2))
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=120)
LABELS = np.where(Y > 0.5, "high", np.where(Y < -0.5, "low", "middle"))
GP = models.GP(kernels.RBF(variance=1.3, lengthscale=0.9), noise=0.09, mean=0.0)
CLASSES = models.GP(kernels.RBF(1.0, 1.0), likelihood=likelihoods.Bernoulli())
pytestmark = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")

#: every fast model; the own method is the default
CHECKED = {
    "linear": ProbabilisticRegressor("linear", "exact", conformal="quantile"),
    "gp": ProbabilisticRegressor(GP, "exact", conformal="normalized"),
    "glm": ProbabilisticRegressor("glm", "map", conformal="pit"),
    "sgpr": ProbabilisticRegressor(models.SGPR(inducing=10), "map"),
    "kriging": ProbabilisticRegressor("kriging"),
    "vecchia": ProbabilisticRegressor(models.Vecchia(neighbours=5), "map"),
    "svgp": ProbabilisticRegressor(models.SVGP(inducing=8), inference.MAP(steps=20)),
    "labels": ProbabilisticClassifier(how="map", conformal="lac"),
    "latent gp": ProbabilisticClassifier(CLASSES, "map"),
    "ordered labels": ProbabilisticClassifier("ordinal", "map", conformal="aps"),
    "two labels": ProbabilisticClassifier("logistic", "map", conformal="aps"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKED)
def test_scikit_learn_accepts_the_calibrated_estimator(kind: str) -> None:
    assert number_passed(CHECKED[kind]) > 30


def gp(**options: Any) -> Any:
    return ProbabilisticRegressor(GP, "exact", **options)


def test_mean_sd_and_covariance_are_those_of_scikit_learns_gp() -> None:
    kernel = 1.3 * sk.RBF(0.9) + sk.WhiteKernel(0.09)
    peer = GaussianProcessRegressor(kernel, optimizer=None, alpha=0).fit(X, Y)
    found = gp().fit(X, Y)
    new = X[:7] + 0.1
    mean, covariance = peer.predict(new, return_cov=True)
    ours, ours_covariance = found.predict(new, return_cov=True)
    np.testing.assert_allclose(ours, mean, atol=1e-8)
    np.testing.assert_allclose(ours_covariance, covariance, atol=1e-7)
    _, sd = found.predict(new, return_std=True)
    np.testing.assert_allclose(sd**2, np.diag(covariance), atol=1e-7)
    with pytest.raises(errors.SettingError, match="return_std or return_cov"):
        found.predict(new, return_std=True, return_cov=True)


def test_draws_have_the_covariance_of_the_joint_prediction() -> None:
    found = gp().fit(X, Y)
    new = X[:3] + np.array([[0.1], [0.12], [0.0]])
    draws = found.sample_y(new, 20_000, random_state=1)
    assert draws.shape == (3, 20_000)
    mean, covariance = found.predict(new, return_cov=True)
    variances = np.diag(covariance)
    np.testing.assert_allclose(draws.mean(1), mean, atol=5 * math.sqrt(variances.max() / 20_000))
    error = 5 * np.sqrt((covariance**2 + np.outer(variances, variances)) / 20_000)
    assert np.all(np.abs(np.cov(draws) - covariance) < error)
    np.testing.assert_array_equal(draws, found.sample_y(new, 20_000, random_state=1))


def test_quantiles_are_those_of_the_prediction() -> None:
    found = gp().fit(X, Y)
    both = found.predict_quantile(X, [0.05, 0.95])
    assert both.shape == (120, 2)
    np.testing.assert_array_equal(both[:, 0], found.predict_quantile(X, 0.05))
    lower, upper = found.predict_interval(X)
    np.testing.assert_allclose(both, np.stack([lower, upper], 1), atol=1e-12)


def test_a_calibrated_interval_leaves_a_quarter_of_the_rows_to_calibrate() -> None:
    found = gp(conformal="quantile", level=0.8).fit(X, Y)
    assert len(found.calibrator_) == 30
    assert found.posterior_.data.n == 90
    region = found.predict_interval(X + 0.05)
    assert region.level == 0.8
    assert region.guarantee == "marginal coverage >= 0.8 (exchangeable rows)"
    assert gp().fit(X, Y).predict_interval(X).guarantee.startswith("none beyond the model")
    wanted = ppgp.calibrate(
        ppgp.conformal.Quantile(), found.calibrator_.prediction, found.calibrator_.y
    )
    new = found.predict_distribution(X + 0.05)
    assert np.array_equal(wanted(new, level=0.8).lower, region.lower)


def test_label_sets_with_and_without_calibration() -> None:
    plain = ProbabilisticClassifier(how="map").fit(X, LABELS)
    region = plain.predict_set(X, level=0.8)
    p = plain.predict_proba(X)
    kept = region.labels
    assert kept is not None
    kept = kept.numpy()
    assert np.all((p * kept).sum(1) >= 0.8 - 1e-12)
    smallest = np.where(kept, p, np.inf).min(1)
    assert np.all((p * kept).sum(1) - smallest < 0.8)  # without the least of them too few
    found = ProbabilisticClassifier(how="map", conformal="lac").fit(X, LABELS)
    assert found.predict_set(X).guarantee.startswith("marginal coverage >= 0.9")
    assert len(found.calibrator_) == 30


def test_options_inside_a_model_are_parameters() -> None:
    found = ProbabilisticRegressor("gp", how="map")
    assert "model__kernel__lengthscale" in found.get_params()
    assert "how__optimizer" in found.get_params()
    assert set(found.get_params(deep=False)) >= {"model", "how", "level", "conformal"}
    found.set_params(model__kernel__lengthscale=0.5, model__noise="LogNormal(0, 1)")
    assert found.model.kernel.kernel.lengthscale == 0.5
    assert found.model.noise == priors.LogNormal(0, 1)
    assert clone(found).model == found.model
    wrapped = ProbabilisticRegressor(models.GP(kernels.ARD(kernels.RBF()) + kernels.Linear()))
    wrapped.set_params(model__kernel__0__lengthscale=2.0)
    assert wrapped.get_params()["model__kernel__children__0__kernel__lengthscale"] == 2.0
    with pytest.raises(errors.UnknownName, match=r"'lengthscal'.*did you mean 'lengthscale'"):
        found.set_params(model__kernel__lengthscal=1.0)
    with pytest.raises(errors.UnknownName, match="'level'"):
        found.set_params(level__x=1.0)
    dropout = ProbabilisticRegressor("mc-dropout").set_params(model__likelihood="StudentT()")
    assert dropout.how == "mc-dropout"


def test_a_grid_search_over_a_lengthscale_in_a_pipeline() -> None:
    search = GridSearchCV(
        make_pipeline(StandardScaler(), gp()),
        {"probabilisticregressor__model__kernel__lengthscale": [0.01, 0.7]},
        cv=2,
    ).fit(X, Y)
    assert search.best_params_ == {"probabilisticregressor__model__kernel__lengthscale": 0.7}


def test_sample_weight_is_another_name_of_weights() -> None:
    twice = np.where(np.arange(120) < 40, 2.0, 1.0)
    repeated = np.concatenate([np.arange(40), np.arange(120)])
    by_weight = ProbabilisticRegressor("glm", "map").fit(X, Y, sample_weight=twice)
    by_rows = ProbabilisticRegressor("glm", "map").fit(X[repeated], Y[repeated])
    np.testing.assert_allclose(by_weight.predict(X), by_rows.predict(X), atol=1e-4)
    other = ProbabilisticRegressor("glm", "map").fit(X, Y, weights=twice)
    np.testing.assert_array_equal(by_weight.predict(X), other.predict(X))
    with pytest.raises(errors.SettingError, match="weights or sample_weight"):
        gp().fit(X, Y, weights=twice, sample_weight=twice)
    with pytest.raises(errors.PpgpError, match="weights"):
        gp().fit(X, Y, sample_weight=twice)
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        gp().fit(X, Y, weight=twice)


def test_metadata_are_routed_through_a_search() -> None:
    exposure = RNG.uniform(1, 5, size=120)
    counts = RNG.poisson(exposure * np.exp(0.5 * X[:, 0]))
    with sklearn.config_context(enable_metadata_routing=True):
        asked = (
            ProbabilisticRegressor("glm", "map", likelihood="poisson")
            .set_fit_request(offset=True, sample_weight=True)
            .set_predict_request(offset=True)
            .set_score_request(offset=True, sample_weight=True)
        )
        search = GridSearchCV(asked, {"seed": [0]}, cv=2)
        search.fit(X, counts, offset=np.log(exposure), sample_weight=np.ones(120))
        assert search.best_score_ > 0.5


def test_rows_of_frames_keep_their_names_and_features_their_container() -> None:
    table = pd.DataFrame(X, columns=["east", "north"])
    found = gp(conformal="normalized").fit(table, Y)
    assert list(found.feature_names_in_) == ["east", "north"]
    assert found.posterior_.data.feature_names == ("east", "north")
    features = RBFFeatures(3).set_output(transform="pandas").fit_transform(table)
    assert list(features.columns) == ["rbf0", "rbf1", "rbf2"]


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "score": (lambda: gp(conformal="width").fit(X, Y), errors.UnknownName, "'width'"),
    "level": (lambda: gp(level=95).fit(X, Y), errors.SettingError, "95"),
    "kind": (lambda: gp(conformal="lac").fit(X, Y), errors.NotApplicable, "classes y for LAC"),
    "one row": (lambda: gp(conformal="quantile").fit(X[:1], Y[:1]), ValueError, "n_samples=1"),
}


@pytest.mark.parametrize(("call", "error", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_an_estimator_gets_one_sentence(
    call: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as raised:
        call()
    assert len(str(raised.value)) < 300


def test_calibration_refuses_weights() -> None:
    weights = np.ones(len(Y))
    with pytest.raises(errors.NotApplicable, match="rows without weights, for conformal"):
        ProbabilisticRegressor("glm", "map", conformal="absolute").fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize("number", [-3, 2.5, "a"])
def test_a_number_of_draws_is_whole(number: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no such checks
    X = np.linspace(-1.0, 1.0, 20)[:, None]
    found = ProbabilisticRegressor("linear", "map").fit(X, X[:, 0])
    with pytest.raises(errors.SettingError, match=f"a whole number of draws, got {number!r}"):
        found.sample_y(X, number)


@pytest.mark.parametrize(
    "options",
    [{"centres": 0}, {"centres": 2.7}, {"centres": True}, {"lengthscale": 0.0}]
    + [{"lengthscale": -1.0}, {"lengthscale": "a"}, {"lengthscale": np.inf}],
)
def test_radial_basis_functions_refuse_options_out_of_range(options: dict[str, Any]) -> None:
    ((name, _),) = options.items()
    with pytest.raises(errors.SettingError, match=name):
        RBFFeatures(**options).fit(np.arange(6.0)[:, None])
