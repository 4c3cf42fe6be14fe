"""Conformal estimators beside MAPIE at n = 100,000: fit, calibrate and 100,000 new sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from side_by_side import alternate, show
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from ppgp.estimators import ConformalRegressor

N = 100_000
ROUNDS = 3
# (kind, largest ratio): fits dominate "split", whose ratio is 1 up to the noise of 3 rounds; the
# exact floating-point ends of 100,000 intervals cost some milliseconds where nothing is fitted
MOST = [("split", 1.1), ("cv+", 1.0), ("frozen", 8.0)]


FEW = 100  # new rows of CV+, for which MAPIE has a matrix of n columns


def pairs() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return {name: (ours, MAPIE's)}; both fit, calibrate, and return their sets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        regression = pytest.importorskip("mapie.regression")
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(N, 5)), rng.normal(size=(N, 5))
    y = X[:, 0] + (0.5 + np.abs(X[:, 1])) * rng.normal(size=N)
    train, test = np.split(np.arange(N), [3 * N // 4])
    trees = HistGradientBoostingRegressor(random_state=0)
    fit = LinearRegression().fit(X[train], y[train])

    def ours(rows: np.ndarray, estimator: Any, *options: Any, **named: Any) -> np.ndarray:
        found = ConformalRegressor(estimator, *options, **named).fit(X, y)
        return np.stack([np.asarray(end) for end in found.predict_interval(rows)], 1)

    def split() -> Any:
        peer = regression.SplitConformalRegressor(trees, confidence_level=0.9, prefit=False)
        peer.fit(X[train], y[train]).conformalize(X[test], y[test])
        return peer.predict_interval(new)[1][:, :, 0]

    def frozen() -> Any:
        peer = regression.SplitConformalRegressor(fit, confidence_level=0.9, prefit=True)
        return peer.conformalize(X, y).predict_interval(new)[1][:, :, 0]

    def cross() -> Any:
        peer = regression.CrossConformalRegressor(
            LinearRegression(), confidence_level=0.9, method="plus", cv=KFold(5)
        )
        return peer.fit_conformalize(X, y).predict_interval(new[:FEW])[1][:, :, 0]

    return {
        "split": (lambda: ours(new, trees, cv=[(train, test)]), split),
        "cv+": (lambda: ours(new[:FEW], LinearRegression(), "cv+", cv=KFold(5)), cross),
        "frozen": (lambda: ours(new, FrozenEstimator(fit)), frozen),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "most"), MOST)
def test_conformal_estimators_beside_mapie(kind: str, most: float, benchmark: Any) -> None:
    ours, theirs = pairs()[kind]
    np.testing.assert_allclose(ours(), theirs(), rtol=1e-12, atol=1e-12)
    benchmark.pedantic(ours, rounds=1)
    seconds = alternate({"ppgp": ours, "MAPIE": theirs}, rounds=ROUNDS)
    ratio = show(f"{kind}, n = {N}", seconds, "s", 1.0)
    benchmark.extra_info["ratio"] = ratio
    assert ratio <= most
