"""Intervals and label sets around scikit-learn estimators: rules, guarantees, inputs, errors."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor, RidgeCV
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVC
from sklearn_checks import number_passed

from ppgp import errors, estimators
from ppgp.conformal import Quantile
from ppgp.estimators import ConformalClassifier, ConformalRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = X[:, 0] + (0.3 + 0.5 * (X[:, 1] > 0)) * RNG.normal(size=300)
LABELS = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.8 * RNG.normal(size=300), [-0.5, 0.6])]
NEW = RNG.normal(size=(200, 2))
OLS = LinearRegression()
TEXT = pd.DataFrame({"a": X[:, 0], "s": ["u", "v", "w"] * 100})
DAYS = pd.date_range("2020-01-01", periods=300)
QUANTILES = QuantileRegressor(alpha=0.0)

CHECKED = {
    "split": ConformalRegressor(OLS),
    "cv+": ConformalRegressor(OLS, "cv+", cv=3),
    "labels": ConformalClassifier(LogisticRegression()),
    "labels by cv+": ConformalClassifier(LogisticRegression(), "cv+", cv=3),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(
    "kind",
    [
        "split",
        *(pytest.param(k, marks=pytest.mark.slow) for k in CHECKED if k not in ("split", "labels")),
        "labels",
    ],
)
def test_scikit_learn_accepts_the_conformal_estimator(kind: str) -> None:
    assert number_passed(CHECKED[kind]) > 45


def rows(method: str, **options: Any) -> Any:
    return ConformalRegressor(OLS, method, **options).fit(X, Y)


def test_split_ranks_the_residuals_of_rows_that_the_fit_did_not_use() -> None:
    found = rows("split", cv=KFold(5))  # the last fold of five
    fit = LinearRegression().fit(X[:240], Y[:240])
    residuals = np.sort(np.abs(Y[240:] - fit.predict(X[240:])))
    q = residuals[math.ceil(61 * 0.8) - 1]
    lower, upper = found.predict_interval(NEW, level=0.8)
    np.testing.assert_allclose(lower, fit.predict(NEW) - q, atol=1e-12)
    np.testing.assert_allclose(upper, fit.predict(NEW) + q, atol=1e-12)
    np.testing.assert_array_equal(found.predict(NEW), fit.predict(NEW))
    assert len(found.calibrator_) == 60


def test_all_rows_calibrate_a_frozen_estimator() -> None:
    fit = LinearRegression().fit(X[:100], Y[:100])
    found = ConformalRegressor(FrozenEstimator(fit)).fit(X[100:], Y[100:])
    assert len(found.calibrator_) == 200
    region = found.predict_interval(NEW)
    assert region.guarantee == (
        "marginal coverage >= 0.9 (exchangeable rows), "
        "if the frozen estimator was fitted to other rows"
    )
    assert found.estimator_.estimator is fit
    with pytest.raises(errors.SettingError, match=r"cv\+ can refit, got a frozen one"):
        ConformalRegressor(FrozenEstimator(fit), "cv+").fit(X, Y)


def test_a_quantile_regressor_is_fitted_at_both_ends_and_the_median() -> None:
    for estimator in (QUANTILES, make_pipeline(StandardScaler(), QUANTILES)):
        found = ConformalRegressor(estimator, level=0.8).fit(X, Y)
        assert found.score_ == Quantile()
        last = [getattr(one, "steps", [("", one)])[-1][1] for one in found.estimator_]
        assert [one.quantile for one in last] == pytest.approx([0.1, 0.5, 0.9])
        np.testing.assert_array_equal(found.predict(NEW), found.estimator_[1].predict(NEW))
    pair = (QuantileRegressor(quantile=0.1, alpha=0), QuantileRegressor(quantile=0.9, alpha=0))
    other = ConformalRegressor(pair, level=0.8).fit(X, Y)
    for one, two in zip(
        ConformalRegressor(QUANTILES, level=0.8).fit(X, Y).predict_interval(NEW),
        other.predict_interval(NEW),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, atol=1e-8)
    with pytest.raises(errors.NotApplicable, match=r"a quantile at 0\.05, got quantiles at 0\.1"):
        other.predict_interval(NEW, level=0.9)


@pytest.mark.parametrize(
    ("estimator", "option"),
    [
        (HistGradientBoostingRegressor(loss="quantile", quantile=0.5), "quantile"),
        (QUANTILES, "quantile"),
        (HistGradientBoostingRegressor(), None),
        (RidgeCV(), None),
        (OLS, None),
    ],
    ids=repr,
)
def test_options_of_quantiles_are_found(estimator: Any, option: str | None) -> None:
    from ppgp.estimators.any_estimator import quantile_option

    assert quantile_option(estimator) == option


def test_a_normalised_score_takes_the_sd_of_the_estimator() -> None:
    gp = GaussianProcessRegressor(optimizer=None, alpha=0.3)
    region = ConformalRegressor(gp, conformity_score="normalized").fit(X, Y).predict_interval(NEW)
    assert float(region.width.max() / region.width.min()) > 1.2
    with pytest.raises(errors.NotApplicable, match="got the points of LinearRegression"):
        ConformalRegressor(OLS, conformity_score="normalized").fit(X, Y)


def test_the_distribution_of_an_own_estimator_is_taken() -> None:
    own = estimators.ProbabilisticRegressor("linear", "exact")
    found = ConformalRegressor(own, conformity_score="quantile").fit(X, Y)
    region = found.predict_interval(NEW)
    assert region.guarantee.startswith("marginal coverage >= 0.9")
    assert pickle.dumps(found)  # as a search in several processes needs
    frozen = ConformalRegressor(FrozenEstimator(found.estimator_), conformity_score="pit")
    with pytest.warns(errors.DataWarning, match="225 of 300 calibration rows"):
        frozen.fit(X, Y)
    assert frozen.predict_interval(NEW).guarantee.startswith("heuristic: 225 of 300")


@pytest.mark.parametrize("column", [1, "side", lambda table: table["side"]])
@pytest.mark.parametrize("method", ["split", "cv+"])
def test_each_category_has_its_own_threshold(column: Any, method: str) -> None:
    table = pd.DataFrame({"x": X[:, 0], "side": (X[:, 1] > 0).astype(int)})
    found = ConformalRegressor(OLS, method, mondrian=column).fit(table, Y)
    region = found.predict_interval(table)
    wide = table["side"].to_numpy() == 1
    widths = region.width.numpy()
    assert widths[wide].min() > 1.5 * widths[~wide].max()
    assert "given the" in region.guarantee
    assert "fixed beforehand" in region.guarantee


def test_cv_plus_in_categories_ranks_the_rows_of_the_category_alone() -> None:
    """Beside every set written out: the ends of each left-out row of the category."""
    side = X[:, 1] > 0
    found = ConformalRegressor(OLS, "cv+", cv=KFold(4), mondrian=lambda x: x[:, 1] > 0).fit(X, Y)
    lower, _ = found.predict_interval(NEW, level=0.8)
    for category in (False, True):
        ends = []
        for train, test in KFold(4).split(X):
            fit = LinearRegression().fit(X[train], Y[train])
            mine = test[side[test] == category]
            residual = np.abs(Y[mine] - fit.predict(X[mine]))
            ends.append(fit.predict(NEW)[:, None] - residual)
        ordered = np.sort(np.concatenate(ends, 1), 1)
        rank = math.floor(0.2 * (ordered.shape[1] + 1) + 1e-9)
        here = (NEW[:, 1] > 0) == category
        np.testing.assert_allclose(np.asarray(lower)[here], ordered[here, rank - 1], atol=1e-12)


def test_a_label_set_does_not_depend_on_the_rows_beside_it() -> None:
    """Scores of equal rows tie, but for the rounding of a matrix product of another size."""
    for seed in (1, 22, 119):
        rng = np.random.default_rng(seed)
        places = rng.normal(size=(2, int(rng.integers(4, 60))))
        rows = places[rng.integers(0, 2, 300)]
        labels = (rng.random(300) < 0.65).astype(int)
        found = ConformalClassifier(LogisticRegression(), "cv+", cv=3).fit(rows, labels)
        together = found.predict_set(places[np.arange(300) % 2]).labels[:2]
        alone = [found.predict_set(places[i : i + 1]).labels[0] for i in range(2)]
        np.testing.assert_array_equal(together, np.stack(alone))


def test_categories_of_folds_of_unequal_sizes_have_the_cost_of_these() -> None:
    folds = [[0, 1, 2], [3, 4], [5, 6]]
    rows = np.column_stack([np.arange(7.0), [1, 0, 0, 1, 0, 1, 0]])
    split = [(np.setdiff1d(np.arange(7), test), np.array(test)) for test in folds]
    found = ConformalRegressor(OLS, "cv+", cv=split, mondrian=1).fit(rows, rows[:, 0] ** 2)
    region = found.predict_interval(np.array([[2.5, 1.0]]), level=0.9)
    # three rows, in one fold each: 2 (1 - 1/3) / (3/3 + 1) is 2/3, and nothing is left of 0.8
    assert "coverage >= 0.133" in region.guarantee


def test_groups_count_as_one_row_each() -> None:
    """Lee, Barber & Willett (2023): rows of new groups are covered, where rows alone are not.

    Groups of one and of many rows have residuals of different size. The coverage is averaged over
    60 draws of 20 calibration groups, with 50 rows of new groups each.
    """
    rng = np.random.default_rng(1)
    draws, groups, news, level = 60, 20, 50, 0.8
    coverage: dict[bool, list[float]] = {True: [], False: []}
    zero = FrozenEstimator(DummyRegressor(strategy="constant", constant=0.0).fit([[0.0]], [0.0]))
    for _ in range(draws):
        big = rng.random(groups) < 0.5
        labels = np.repeat(np.arange(groups), np.where(big, 40, 1))
        y = np.where(big, 0.3, 1.0)[labels] * rng.normal(size=len(labels))
        new = np.where(rng.random(news) < 0.5, 0.3, 1.0) * rng.normal(size=news)
        for by_group, result in coverage.items():
            found = ConformalRegressor(zero, level=level)
            found.fit(np.zeros((len(y), 1)), y, groups=labels if by_group else None)
            region = found.predict_interval(np.zeros((news, 1)))
            result.append(float(region.covers(new).double().mean()))
    for by_group, result in coverage.items():
        error = 3 * np.std(result, ddof=1) / math.sqrt(draws)
        assert (np.mean(result) > level - error) == by_group


def test_each_kind_of_folds_has_its_sentence() -> None:
    def sentence(estimator: Any, y: Any = Y, **params: Any) -> str:
        fitted = estimator.fit(X, y, **params)
        region = fitted.predict_set if y is LABELS else fitted.predict_interval
        return region(NEW).guarantee

    groups = np.arange(300) // 5
    assert sentence(ConformalRegressor(OLS)) == "marginal coverage >= 0.9 (exchangeable rows)"
    assert sentence(ConformalRegressor(OLS, "cv+")).startswith("coverage >= 0.741 (exchangeable")
    assert sentence(ConformalRegressor(OLS), groups=groups) == (
        "marginal coverage >= 0.9 for a row of a new group (exchangeable groups)"
    )
    few = sentence(ConformalRegressor(OLS), groups=np.arange(300) % 20)
    assert few.endswith("infinite, as 5 calibration groups are fewer than the 9 a finite set needs")
    assert "rows of new groups" in sentence(ConformalRegressor(OLS, "cv+"), groups=groups)
    by_time = ConformalRegressor(OLS, cv=TimeSeriesSplit(3))
    assert "in the order of time are not exchangeable" in sentence(by_time)
    assert len(by_time.calibrator_) == 75
    assert "in the order of time" in sentence(ConformalRegressor(OLS, "cv+", cv=TimeSeriesSplit(3)))
    stratified = ConformalClassifier(GaussianNB(), "cv+", cv=StratifiedKFold(5))
    assert sentence(stratified, LABELS).endswith("the folds depend on y")
    shared = ConformalRegressor(OLS, cv=KFold(3, shuffle=True, random_state=0))
    assert "rows of one group are in the fit" in sentence(shared, groups=groups)
    pairs = [(np.arange(100), np.arange(100, 200)), (np.arange(100, 200), np.arange(100))]
    assert "not fitted to all rows" not in sentence(ConformalRegressor(OLS, "split", cv=pairs))
    assert "not fitted to all rows" in sentence(
        ConformalRegressor(OLS, "cv+", cv=[(np.arange(50, 100), np.arange(50)), pairs[0]])
    )


def test_label_sets_cover_and_keep_the_names_of_classes() -> None:
    found = ConformalClassifier(LogisticRegression()).fit(X, LABELS)
    region = found.predict_set(X, level=0.8)
    assert list(found.classes_) == ["a", "b", "c"]
    assert region.labels is not None
    assert region.labels.shape == (300, 3)
    assert found.predict_proba(NEW).shape == (200, 3)
    assert set(found.predict(NEW)) <= set("abc")


@pytest.mark.filterwarnings("ignore:no row of a fit has the label:ppgp.errors.DataWarning")
def test_a_class_that_a_fold_lacks_has_probability_0() -> None:
    labels = np.where(np.arange(300) == 7, "rare", LABELS)
    found = ConformalClassifier(GaussianNB(), "cv+", cv=KFold(5)).fit(X, labels)
    assert found.predict_set(NEW).labels is not None
    assert found.predict_proba(NEW).shape == (200, 4)


def test_metadata_reach_the_estimator_and_the_splitter() -> None:
    weight = np.where(X[:, 1] > 0, 1e-6, 1.0)
    half = rows("split", cv=KFold(2))
    weighted = ConformalRegressor(OLS, cv=KFold(2)).fit(X, Y, sample_weight=weight)
    wanted = LinearRegression().fit(X[:150], Y[:150], sample_weight=weight[:150])
    np.testing.assert_allclose(weighted.predict(NEW), wanted.predict(NEW))
    assert not np.allclose(weighted.predict(NEW), half.predict(NEW))
    groups = np.arange(300) // 10
    with sklearn.config_context(enable_metadata_routing=True):
        asked = LinearRegression().set_fit_request(sample_weight=True)
        routed = ConformalRegressor(asked, "cv+", cv=GroupKFold(5))
        routed.fit(X, Y, sample_weight=weight, groups=groups)
        wanted = LinearRegression().fit(X, Y, sample_weight=weight)
        np.testing.assert_allclose(routed.predict(NEW), wanted.predict(NEW))


def test_frames_pipelines_and_searches() -> None:
    table = pd.DataFrame(X, columns=["one", "two"])
    found = ConformalRegressor(make_pipeline(StandardScaler(), OLS)).fit(table, Y)
    assert list(found.feature_names_in_) == ["one", "two"]
    assert found.n_features_in_ == 2
    search = GridSearchCV(
        ConformalRegressor(make_pipeline(StandardScaler(), OLS)),
        {"estimator__linearregression__fit_intercept": [True, False]},
        cv=2,
    ).fit(table, Y + 5)
    assert search.best_params_ == {"estimator__linearregression__fit_intercept": True}
    assert clone(found).estimator is not found.estimator


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "method": (lambda: rows("cv"), errors.UnknownName, r"'cv'.*did you mean 'cv\+'"),
    "level": (lambda: rows("split", level=90), errors.SettingError, "90"),
    "score": (lambda: rows("split", conformity_score="abs"), errors.UnknownName, "'abs'"),
    "sides": (lambda: rows("cv+", conformity_score="signed"), errors.NotApplicable, "one side"),
    "share": (
        lambda: rows("split", cv=5),
        errors.SettingError,
        r"share of calibration rows.*'cv\+' for 5",
    ),
    "class": (
        lambda: ConformalRegressor(LinearRegression).fit(X, Y),
        errors.NotApplicable,
        r"an instance .*, got the class LinearRegression: call it: LinearRegression\(\)",
    ),
    "name": (lambda: ConformalRegressor("hgb").fit(X, Y), errors.NotApplicable, "got 'hgb'"),
    "class of a classifier": (
        lambda: ConformalClassifier(LogisticRegression).fit(X, LABELS),
        errors.NotApplicable,
        r"call it: LogisticRegression\(\)",
    ),
    "one fold": (lambda: rows("cv+", cv=1), errors.SettingError, "between 2 and n = 300"),
    "folds of jackknife": (lambda: rows("jackknife+", cv=5), errors.SettingError, r"cv\+"),
    "repeated": (
        lambda: rows("cv+", cv=ShuffleSplit(3, random_state=0)),
        errors.SettingError,
        "leave out each row once",
    ),
    "no folds": (lambda: rows("cv+", cv="five"), errors.SettingError, "a splitter, a number"),
    "column": (lambda: rows("split", mondrian="side"), errors.UnknownName, "'side'"),
    "groups": (
        lambda: ConformalRegressor(OLS).fit(X, Y, groups=[1, 2]),
        errors.DataError,
        r"one group per row \(300\)",
    ),
    "no probabilities": (
        lambda: ConformalClassifier(LinearSVC()).fit(X, LABELS),
        errors.NotApplicable,
        "predict_proba",
    ),
    "three and a half": (
        lambda: ConformalRegressor((OLS,)).fit(X, Y),
        errors.SettingError,
        r"\(lower, upper\)",
    ),
    "cut short": (
        lambda: rows("split", conformity_score="abs"),
        errors.UnknownName,
        "did you mean 'absolute'",
    ),
    "no predictions": (
        lambda: ConformalRegressor(StandardScaler()).fit(X, Y),
        errors.NotApplicable,
        r"a regressor, got StandardScaler\(\): put it in a pipeline",
    ),
    "clusters": (
        lambda: ConformalRegressor(KMeans(2)).fit(X, Y),
        errors.NotApplicable,
        "a regressor, got the clusterer KMeans",
    ),
    "labels": (
        lambda: ConformalRegressor(make_pipeline(StandardScaler(), GaussianNB())).fit(X, Y > 0),
        errors.NotApplicable,
        "a regressor, got the classifier Pipeline.*: use ConformalClassifier",
    ),
    "one category": (
        lambda: rows("split", mondrian=lambda x: 1),
        errors.DataError,
        r"one category per row \(300\) from mondrian, got shape \[\]",
    ),
    "weights": (
        lambda: ConformalRegressor(SVR()).fit(X, Y, sample_weight=np.ones(5)),
        errors.DataError,
        r"one sample_weight per row \(300\), got shape \[5\]",
    ),
    "frozen too early": (
        lambda: ConformalRegressor(FrozenEstimator(OLS)).fit(X, Y),
        errors.SettingError,
        r"that is not fitted: freeze a fitted one: FrozenEstimator\(LinearRegression\(\)\.fit",
    ),
    "frozen classifier too early": (
        lambda: ConformalClassifier(FrozenEstimator(GaussianNB())).fit(X, LABELS),
        errors.SettingError,
        "a GaussianNB that is not fitted",
    ),
    "folds of groups": (
        lambda: rows("cv+", cv=GroupKFold(3)),
        errors.SettingError,
        r"groups of rows, got none for GroupKFold: write fit\(X, y, groups=\.\.\.\)",
    ),
    "text": (
        lambda: ConformalRegressor(OLS, mondrian="s").fit(TEXT, Y),
        errors.DataError,
        "numbers in column 's', got 'u': encode it .* the column of mondrian too",
    ),
    "dates": (
        lambda: ConformalRegressor(OLS).fit(TEXT.assign(s=DAYS), Y),
        errors.DataError,
        r"numbers in column 's', got Timestamp.*: make it a number, for example by \.dt\.year",
    ),
    "unseen category": (
        lambda: rows("split", mondrian=lambda x: x[:, 0] > 2.5).predict_interval(NEW + 9),
        errors.DataError,
        "calibration rows in every group",
    ),
}


@pytest.mark.parametrize(("call", "error", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gets_one_sentence(call: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence) as raised:
        call()
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("absent", ["a", "b", "c"])
def test_calibration_rows_may_lack_a_class_of_a_frozen_classifier(absent: str) -> None:
    inner = LogisticRegression().fit(X, LABELS)
    rows = absent != LABELS
    frozen = ConformalClassifier(FrozenEstimator(inner)).fit(X[rows], LABELS[rows])
    assert frozen.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(frozen.predict_proba(NEW), inner.predict_proba(NEW), rtol=1e-12)
    assert frozen.predict_set(NEW).labels.shape == (len(NEW), 3)


def test_a_level_that_is_set_after_the_fit_keeps_the_fitted_quantiles() -> None:
    conformal = ConformalRegressor(QUANTILES, level=0.9).fit(X, Y)
    inside = conformal.predict_interval(NEW, level=0.6)
    conformal.set_params(level=0.6)
    for a, b in zip(conformal.predict_interval(NEW), inside, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_splitter_of_groups_that_looks_at_y_leaves_no_guarantee() -> None:
    groups = np.arange(300) // 5
    labels = (Y > 0).astype(int)
    splitter = StratifiedGroupKFold(4)
    found = ConformalClassifier(LogisticRegression(), cv=splitter).fit(X, labels, groups=groups)
    assert found.predict_set(NEW).guarantee.startswith("heuristic")
    whole = ConformalClassifier(LogisticRegression(), cv=GroupKFold(4)).fit(
        X, labels, groups=groups
    )
    assert "new group" in whole.predict_set(NEW).guarantee


def test_labels_that_a_fit_lacks_are_said() -> None:
    order = np.argsort(LABELS)
    conformal = ConformalClassifier(LogisticRegression(), cv=[(order[:150], order[150:])])
    with pytest.warns(errors.DataWarning, match="no row of a fit has the label c"):
        found = conformal.fit(X, LABELS)
    assert "hold all labels" in repr(found.predict_set(NEW))
