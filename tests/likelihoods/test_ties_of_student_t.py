"""A Student t likelihood of targets with many equal values: the search starts in the prior."""

from __future__ import annotations

import numpy as np
import pytest

from ppgp import Dataset, fit
from ppgp.inference import MAP, NaturalGradientBoosting
from ppgp.likelihoods import Gaussian, Laplace, Predicted, StudentT
from ppgp.models import GLM, Boosted

quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def table(share: float, n: int = 50) -> Dataset:
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    y[: int(share * n)] = 0.5
    return Dataset(X, y)


@quiet
@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.3, 0.4])
def test_the_mode_is_that_of_all_values(share) -> None:
    """Its scale is at most that of a normal distribution, and its interval holds other values."""
    posterior = fit(GLM(StudentT()), table(share), MAP(), progress=False)
    assert float(posterior.draws["df"]) > 0.5
    assert 0.2 < float(posterior.draws["scale"]) < 1.2
    interval = posterior.predict(np.zeros((1, 2))).interval(0.9)
    assert 1.0 < float(interval.upper - interval.lower) < 10.0


@quiet
@pytest.mark.parametrize("likelihood", [StudentT(), Gaussian(), Laplace()], ids=repr)
def test_equal_targets_are_fitted(likelihood) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    posterior = fit(GLM(likelihood), Dataset(X, np.full(30, 7.0)), MAP(), progress=False)
    assert abs(float(posterior.predict(X[:1]).quantile(0.5)) - 7.0) < 1e-6


@quiet
def test_boosting_starts_from_all_values() -> None:
    likelihood = StudentT(df=Predicted(), scale=Predicted())
    how = NaturalGradientBoosting(score="nll", steps=3, folds=None)
    prediction = fit(Boosted(likelihood), table(0.3), how, progress=False).predict(np.zeros((1, 2)))
    interval = prediction.interval(0.9)
    assert 1.0 < float(interval.upper - interval.lower) < 20.0
