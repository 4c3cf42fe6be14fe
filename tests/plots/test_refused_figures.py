"""Figures refuse rows that do not match, nothing to show, and values without names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ppgp
from ppgp import conformal, inference, kernels, likelihoods, models, plots
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.posterior.prediction import Prediction

pytestmark = pytest.mark.usefixtures("types_unchecked")

X = np.random.default_rng(0).normal(size=(12, 2))
NEW = X[:3] + 0.1


def fitted(model: Any, y: Any, how: inference.Inference | None = None) -> ppgp.Posterior:
    return ppgp.fit(model, ppgp.Dataset(X, y), how or inference.MAP(), progress=False)


@pytest.fixture(scope="module")
def linear() -> ppgp.Posterior:
    return fitted(models.LinearRegression(), X[:, 0], inference.Exact(draws=50))


@pytest.fixture(scope="module")
def prediction(linear: ppgp.Posterior) -> Prediction:
    return linear.predict(NEW)


@pytest.fixture(scope="module")
def classifier() -> ppgp.Posterior:
    return fitted(models.LogisticRegression(), np.arange(12) % 2)


@pytest.mark.parametrize("y", [[1.0], [1.0, 2.0], np.ones((3, 1))])
def test_every_row_has_its_own_y(prediction: Prediction, y: Any) -> None:
    with pytest.raises(DataError, match=r"one y per row \(3\)"):
        plots.interval_score({"linear": prediction}, y)


def test_every_row_has_its_own_label(classifier: ppgp.Posterior) -> None:
    classes = classifier.predict(NEW)
    for y in ([1], [0, 1], np.ones((3, 1))):
        with pytest.raises(DataError, match=r"one label per row \(3\)"):
            plots.reliability(classes, y)
    with pytest.raises(DataError, match="codes of classes"):
        plots.reliability(classes, ["a", "b", "a"])
    with pytest.raises(DataError, match=r"labels 0\.\.1"):
        plots.reliability(classes, [0, 1, 2])
    with pytest.raises(SettingError, match="at least 1 as bins"):
        plots.reliability(classes, [0, 1, 1], bins=0)


def test_regions_and_inputs_are_those_of_the_rows(
    linear: ppgp.Posterior, prediction: Prediction
) -> None:
    other, own = linear.predict(NEW[:1]).interval(0.9), prediction.interval(0.9)
    with pytest.raises(DataError, match=r"one entry of region per row \(3\)"):
        plots.intervals(prediction, [1.0, 2.0, 3.0], other)
    with pytest.raises(DataError, match=r"one entry of own per row \(3\)"):
        plots.intervals(prediction, [1.0, 2.0, 3.0], own, own=other)
    with pytest.raises(DataError, match=r"one entry of x per row \(3\)"):
        plots.function([1.0], prediction, {"own": own})
    with pytest.raises(DataError, match=r"one entry of other per row \(3\)"):
        plots.function([1.0, 2.0, 3.0], prediction, {"other": other})
    with pytest.raises(DataError, match=r"one entry of truth per row \(3\)"):
        plots.function([1.0, 2.0, 3.0], prediction, {}, truth=[1.0])
    with pytest.raises(DataError, match=r"one entry of y in data per row \(1\)"):
        plots.function([1.0, 2.0, 3.0], prediction, {}, data=([1.0], [1.0, 2.0]))


def test_several_are_given_by_name(linear: ppgp.Posterior, prediction: Prediction) -> None:
    region, x = prediction.interval(0.9), [1.0, 2.0, 3.0]
    calls: dict[str, Callable[[], Any]] = {
        "posteriors": lambda: plots.marginals(linear),  # pyright: ignore[reportArgumentType]
        "posteriors ": lambda: plots.k_hat(linear),  # pyright: ignore[reportArgumentType]
        "predictions": lambda: plots.interval_score(prediction, x),  # pyright: ignore[reportArgumentType]
        "regions": lambda: plots.widths(region),  # pyright: ignore[reportArgumentType]
        "regions ": lambda: plots.function(x, prediction, region),  # pyright: ignore[reportArgumentType]
    }
    for what, call in calls.items():
        with pytest.raises(SettingError, match=f"{what.strip()} by name"):
            call()


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        (0, "at least 1 as sites"),
        (True, "at least 1 as sites"),
        ([], "at least one scalar"),
        ("noise", r"write \['noise'\]"),
        (1.5, "how many to show"),
    ],
)
def test_a_figure_of_scalars_shows_some(linear: ppgp.Posterior, sites: Any, words: str) -> None:
    for draw in (plots.forest, plots.pair):
        with pytest.raises(SettingError, match=words):
            draw(linear, sites)


def test_a_window_lies_within_the_rows(prediction: Prediction) -> None:
    run = conformal.ACI(conformal.Absolute(), 0.8)(prediction, [1.0, 2.0, 3.0])
    with pytest.raises(SettingError, match="at most 3 rows"):
        plots.online({"ACI": run})
    with pytest.raises(SettingError, match="at least 1 as window"):
        plots.online({"ACI": run}, window=0)
    with pytest.raises(SettingError, match="at least one result"):
        plots.online({})


def test_a_decision_boundary_needs_a_plane(classifier: ppgp.Posterior) -> None:
    with pytest.raises(SettingError, match="two different columns"):
        plots.decision(classifier, (0, 0))
    with pytest.raises(SettingError, match="at least 2 as points"):
        plots.decision(classifier, points=1)
    line = ppgp.Dataset(X[:, :1], np.arange(12) % 2)
    one = ppgp.fit(models.LogisticRegression(), line, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="a decision boundary"):
        plots.decision(one)


def test_a_figure_has_something_to_show(linear: ppgp.Posterior) -> None:
    counts = fitted(models.GLM(likelihoods.Poisson()), np.arange(12))
    gp = fitted(models.GP(kernels.ARD(kernels.RBF())), X[:, 0])
    with pytest.raises(SettingError, match="at least 1 as bars"):
        plots.rootogram(counts, bars=0)
    with pytest.raises(SettingError, match="at least 1 as rows"):
        plots.kernel_matrix(gp, rows=0)
    with pytest.raises(SettingError, match="at least 1 as columns"):
        plots.relevance(gp, columns=0)
    with pytest.raises(SettingError, match="at least 1 as sites"):
        plots.marginals({"linear": linear}, sites=0)
    with pytest.raises(UnknownName, match="observed site"):
        plots.loo(linear, "z")
