"""Linear against the ridge regression of scikit-learn, and Estimator against its regressors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from ppgp import Dataset, fit, inference, models
from ppgp.errors import NotApplicable, SettingError, StorageError
from ppgp.learners import Estimator, Linear
from ppgp.learners.base import drawn_rows, seed_of
from ppgp.posterior.files import encoding

F64 = torch.float64
N = 200


def table() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return X [n, d] far from 0, targets [K, n] and weights [K, n]."""
    generator = torch.Generator().manual_seed(0)
    X = 1e4 + torch.randn(N, 3, dtype=F64, generator=generator) * torch.tensor([1.0, 50.0, 0.1])
    g = torch.randn(2, N, dtype=F64, generator=generator) + X[:, 0] - 1e4
    return X, g, torch.rand(2, N, dtype=F64, generator=generator)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_linear_is_ridge_regression(penalty: float, weighted: bool) -> None:
    X, g, weights = table()
    growing = Linear(penalty).begin(X, 2)
    at_rows, _ = growing.add(g, weights if weighted else None)
    S = ((X - X.mean(0)) / X.std(0, correction=0)).numpy()
    for k in range(2):
        w = weights[k].numpy() if weighted else None
        peer = Ridge(alpha=penalty).fit(S, g[k].numpy(), sample_weight=w)
        np.testing.assert_allclose(at_rows[k].numpy(), peer.predict(S), rtol=1e-9, atol=1e-9)
        found = Linear(penalty).importance(growing.tensors(torch.ones(1)), 3)[k]
        np.testing.assert_allclose(found.numpy(), peer.coef_**2, rtol=1e-7)


def test_collinear_columns_share_their_coefficient() -> None:
    X, g, _ = table()
    growing = Linear(0.0).begin(X[:, [0, 0, 1]], 2)
    at_rows, _ = growing.add(g)
    plain, _ = Linear(0.0).begin(X[:, :2], 2).add(g)
    torch.testing.assert_close(at_rows, plain, rtol=1e-9, atol=1e-9)
    coefficients = growing.tensors(torch.ones(1))["coefficients"][0]
    torch.testing.assert_close(coefficients[:, 0], coefficients[:, 1])


@pytest.mark.parametrize("kind", [DecisionTreeRegressor, ExtraTreeRegressor])
@pytest.mark.parametrize("weighted", [False, True])
def test_decision_trees_become_tensors(kind: Any, weighted: bool) -> None:
    X, g, weights = table()
    X[::7, 1] = torch.nan
    growing = Estimator(kind(max_depth=5)).begin(X, 2, seed=3)
    at_rows, _ = growing.add(g, weights if weighted else None)
    tensors = growing.tensors(torch.full((1,), 0.5))
    new = X.flip(0) + 0.01
    found = Estimator(kind()).predict(tensors, new)
    for k in range(2):
        w = weights[k].numpy() if weighted else None
        peer = kind(max_depth=5, random_state=seed_of(3, 0, k))
        peer.fit(X.numpy(), g[k].numpy(), sample_weight=w)
        np.testing.assert_array_equal(at_rows[k].numpy(), peer.predict(X.numpy()))
        np.testing.assert_array_equal(found[k].numpy(), 0.5 * peer.predict(new.numpy()))
        gains = Estimator(kind()).importance(tensors, 3)[k].numpy()
        np.testing.assert_allclose(gains / gains.sum(), peer.feature_importances_, rtol=1e-9)


def test_each_stage_is_fitted_to_rows_of_its_own() -> None:
    X, g, _ = table()
    growing = Estimator(LinearRegression()).begin(X, 2, rows=0.3, seed=4)
    growing.add(g)
    at_rows, _ = growing.add(g)
    drawn = drawn_rows(N, 0.3, 4, 1)
    assert int(drawn.sum()) == 60
    peer = LinearRegression().fit(X[drawn].numpy(), g[0, drawn].numpy())
    np.testing.assert_allclose(at_rows[0].numpy(), peer.predict(X.numpy()), rtol=1e-9)


def test_random_states_inside_a_pipeline_are_set() -> None:
    X, g, _ = table()
    pipeline = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_features=1))
    one, two = (Estimator(pipeline).begin(X, 2, seed=9).add(g)[0] for _ in range(2))
    assert torch.equal(one, two)


@pytest.mark.filterwarnings("ignore:the score at the rows held out still improved")
def test_regressors_are_kept_in_their_learner_and_in_no_file(tmp_path: Path) -> None:
    X, g, _ = table()
    learner = Estimator(KNeighborsRegressor())
    growing = learner.begin(X, 2)
    at_rows, _ = growing.add(g)
    tensors = growing.tensors(torch.ones(1))
    assert torch.equal(learner.predict(tensors, X), at_rows)
    with pytest.raises(NotApplicable, match="whose regressors these are"):
        Estimator(KNeighborsRegressor()).predict(tensors, X)
    model, data = models.Boosted(learner=learner), Dataset(X, g[0])
    how = inference.NaturalGradientBoosting(steps=3, folds=2)
    posterior = fit(model, data, how, progress=False)
    assert posterior.predict(X).mean.shape == (N,)
    file = tmp_path / "file"
    with pytest.raises(NotApplicable, match="a learner whose stages are tensors"):
        posterior.save(file)
    with pytest.raises(NotApplicable, match="a learner whose stages are tensors"):
        fit(model, data, how, progress=False, checkpoint=file)
    assert not file.exists()


def test_what_is_no_regressor_is_refused() -> None:
    for wrong in (DecisionTreeRegressor, SVC(), "ridge", None):
        with pytest.raises(SettingError, match="a scikit-learn regressor"):
            Estimator(wrong)
    for penalty in (-1.0, float("inf"), True):
        with pytest.raises(SettingError, match="as penalty of Linear"):
            Linear(penalty)


def test_weights_and_codes_that_a_learner_cannot_use_are_refused() -> None:
    X, g, weights = table()
    with pytest.raises(NotApplicable, match="a regressor with sample_weight"):
        Estimator(KNeighborsRegressor()).begin(X, 2).add(g, weights)
    for learner in (Linear(), Estimator(KNeighborsRegressor())):
        with pytest.raises(NotApplicable, match=r"learners\.Trees for columns of codes"):
            learner.begin(X, 2, categorical=(0,))


def test_a_file_names_the_regressor_and_checks_its_options() -> None:
    learner = Estimator(DecisionTreeRegressor(max_depth=2))
    written = encoding.Written()
    tree = encoding.encode(learner, written, "learner")
    classes = {"learners.Estimator": Estimator}
    assert written.classes == classes
    assert list(written.things) == ["DecisionTreeRegressor"]
    with pytest.raises(encoding.NotSupplied, match="DecisionTreeRegressor"):
        encoding.Source({}, classes).decode(tree)
    given = {"DecisionTreeRegressor": DecisionTreeRegressor(max_depth=2)}
    assert encoding.Source({}, classes, given).decode(tree).estimator.max_depth == 2
    other = {"DecisionTreeRegressor": DecisionTreeRegressor(max_depth=3)}
    with pytest.raises(StorageError, match="with the options in the file"):
        encoding.Source({}, classes, other).decode(tree)


@pytest.mark.parametrize("learner", [Linear(), Estimator(DecisionTreeRegressor(max_depth=2))])
def test_boosting_of_float32_is_near_that_of_float64(learner: Any) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    model = models.Boosted(learner=learner)
    how = inference.NaturalGradientBoosting(steps=20, rows=1.0, folds=None)
    means = []
    for dtype in (np.float32, np.float64):
        rows = X.astype(dtype)
        posterior = fit(model, Dataset(rows, 2 * rows[:, 0]), how, progress=False)
        means.append(posterior.predict(rows).mean)
    assert means[0].dtype == torch.float32
    torch.testing.assert_close(means[0].double(), means[1], rtol=1e-3, atol=1e-3)
