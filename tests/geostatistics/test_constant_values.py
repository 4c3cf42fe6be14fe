"""A constant y has no variogram, and every fit to it says so."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import ppgp
from ppgp import inference, kernels, models
from ppgp.data import Dataset
from ppgp.errors import DataError, DataWarning

X = np.random.default_rng(2).uniform(size=(40, 2))
FIXED = kernels.Exponential(1.0, 0.3)


def fit(model: Any, data: Dataset, **options: Any) -> Any:
    return ppgp.fit(model, data, inference.MAP(), progress=False, **options)


@pytest.mark.parametrize("level", [3.0, 0.0, -1e9, np.float32(0.1)])
def test_a_constant_is_reported_by_kriging_and_variograms(level: Any) -> None:
    data = Dataset(X, np.full(40, level))
    with pytest.warns(
        DataWarning, match=re.escape(f"y is constant, {level:g} in every row: the rows")
    ):
        posterior = fit(models.Kriging(FIXED, 0.1), data)
    assert posterior.predict(X[:3]).mean.tolist() == pytest.approx([level] * 3)
    with pytest.warns(DataWarning, match="y is constant"):
        fit(models.Kriging(), data)
    for kind in ("matheron", "cressie"):
        with pytest.warns(DataWarning, match="constant.*there is no variogram"):
            empirical = ppgp.empirical_variogram(data, kind=kind)
        with pytest.raises(DataError, match="got 0 at all lags, as of a constant y"):
            ppgp.fit_variogram(empirical)


def test_a_y_that_the_drift_explains_has_no_variogram_either() -> None:
    plane = Dataset(X, 1.0 + X @ [2.0, -3.0])
    with pytest.warns(DataWarning, match="y less its drift is constant"):
        fit(models.Kriging(FIXED, 0.1, 1), plane)
    with pytest.warns(DataWarning, match="y less its drift is constant"):
        empirical = ppgp.empirical_variogram(plane, drift=1)
    with pytest.raises(DataError, match="constant"):
        ppgp.fit_variogram(empirical)
    codes = np.arange(40) % 2
    related = kernels.Subspace(FIXED, [0, 1]) * kernels.Subspace(
        kernels.Coregionalisation(2, 1, 1.0, 0.5), [2]
    )
    of_outputs = Dataset(np.c_[X, codes], 5.0 + 3.0 * codes)
    with pytest.warns(DataWarning, match="y is constant, one number in all rows of each output"):
        fit(models.Kriging(related, 0.1), of_outputs)


def test_other_models_report_a_constant_that_they_standardise() -> None:
    data = Dataset(X, np.full(40, 3.0))
    for model in (models.GP(FIXED, 0.1), models.LinearRegression(noise=0.1)):
        with pytest.warns(DataWarning, match=r"y is constant: .*every model will predict"):
            fit(model, data)
    times = Dataset(np.sort(X[:, :1], 0), np.full(40, 3.0))
    with pytest.warns(DataWarning, match="y is constant"):
        fit(models.StateSpaceGP(kernels.Matern(1.5, 1.0, 1.0), 0.1), times)


def test_small_differences_are_no_constant() -> None:
    y = 1e6 + 1e-6 * np.random.default_rng(0).normal(size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        fit(models.Kriging(kernels.Exponential(1e-12, 0.3), 1e-14), Dataset(X, y))
        empirical = ppgp.empirical_variogram(Dataset(X, y))
    assert bool((empirical.semivariance > 0).all())
    assert torch.isfinite(empirical.semivariance).all()
