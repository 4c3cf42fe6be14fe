"""Exact GPs against scikit-learn and explicit formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import ppgp
from ppgp import inference, kernels, models, priors
from ppgp.data import Dataset
from ppgp.errors import DataError, SettingError
from ppgp.models.exact import gp as gp_module
from ppgp.models.exact import kriging

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(25, 2, generator=GENERATOR, dtype=torch.float64)
Y = torch.sin(2 * X[:, 0]) + 0.2 * torch.randn(25, generator=GENERATOR, dtype=torch.float64)
NEW = torch.randn(7, 2, generator=GENERATOR, dtype=torch.float64)
DATA = Dataset(X, Y)
MODEL = models.GP(kernels.Matern(2.5, variance=1.7, lengthscale=0.8), noise=0.05)


def test_the_prediction_equals_scikit_learn() -> None:
    kernel = sk.ConstantKernel(1.7, "fixed") * sk.Matern(0.8, "fixed", nu=2.5)
    peer = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=None).fit(X.numpy(), Y.numpy())
    mean, covariance = peer.predict(NEW.numpy(), return_cov=True)
    distribution, joint = (MODEL.predict({}, NEW, DATA, joint=j) for j in (False, True))
    assert np.allclose(distribution.mean[0], mean, atol=1e-10)
    assert np.allclose(distribution.variance[0], np.diag(covariance) + 0.05, atol=1e-10)
    assert np.allclose(joint.covariance_matrix[0], covariance + 0.05 * np.eye(7), atol=1e-10)


def test_closed_form_leave_one_out_equals_n_refits() -> None:
    distribution = MODEL.loo({}, DATA)
    for i in range(DATA.n):
        rest = [j for j in range(DATA.n) if j != i]
        refit = MODEL.predict({}, X[i : i + 1], DATA.rows(rest))
        torch.testing.assert_close(distribution.mean[0, i], refit.mean[0, 0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(
            distribution.variance[0, i], refit.variance[0, 0], rtol=1e-8, atol=1e-8
        )


@pytest.mark.parametrize(
    "model",
    [
        models.GP(kernels.RBF(variance=1.0, lengthscale=0.5), noise=0.1, mean=priors.Normal()),
        models.Kriging(
            kernels.RBF(variance=1.0, lengthscale=0.5),
            nugget=0.1,
            drift="none",
            mean=priors.Normal(0.0, 2.0),
        ),
    ],
    ids=["gp", "kriging"],
)
def test_draws_of_the_mean_share_one_covariance(
    model: models.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    theta = {"mean": torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)}
    each = [replace(model, mean=float(m)) for m in theta["mean"]]
    for budget in (2**28, 1):  # all draws at once, then one by one
        monkeypatch.setattr(gp_module, "MEMORY_BUDGET", budget)
        monkeypatch.setattr(kriging, "MEMORY_BUDGET", budget)
        distributions = (
            model.predict(theta, NEW, DATA),
            model.predict(theta, NEW, DATA, joint=True),
            model.loo(theta, DATA),
        )
        for distribution, ask in zip(distributions, ("predict", "joint", "loo"), strict=True):
            for i, one in enumerate(each):
                alone = (
                    one.loo({}, DATA)
                    if ask == "loo"
                    else one.predict({}, NEW, DATA, joint=ask == "joint")
                )
                torch.testing.assert_close(distribution.mean[i], alone.mean[0])
                torch.testing.assert_close(distribution.variance[i], alone.variance[0])


def test_chunks_of_draws_and_rows_do_not_change_the_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theta = {
        "kernel.lengthscale": torch.linspace(0.5, 2, 9, dtype=torch.float64),
        "noise": torch.linspace(0.1, 0.3, 9, dtype=torch.float64),
    }
    model = models.GP(kernels.RBF(variance=1.0))
    whole, loo = model.predict(theta, NEW, DATA), model.loo(theta, DATA)
    monkeypatch.setattr(gp_module, "MEMORY_BUDGET", 1)
    monkeypatch.setattr(gp_module, "ROWS_AT_ONCE", 2)
    torch.testing.assert_close(model.predict(theta, NEW, DATA).mean, whole.mean)
    torch.testing.assert_close(model.predict(theta, NEW, DATA).variance, whole.variance)
    torch.testing.assert_close(model.loo(theta, DATA).mean, loo.mean)


def test_predictions_are_in_the_units_of_the_data() -> None:
    far = Dataset(1000 + 50 * X, -300 + 7 * Y)
    one = ppgp.fit(models.GP(), DATA, inference.MAP(), progress=False).predict(NEW)
    two = ppgp.fit(models.GP(), far, inference.MAP(), progress=False).predict(1000 + 50 * NEW)
    torch.testing.assert_close(two.mean, -300 + 7 * one.mean, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(two.std, 7 * one.std, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        two.log_prob(-300 + 7 * Y[:7]), one.log_prob(Y[:7]) - np.log(7.0), rtol=1e-5, atol=1e-5
    )


def test_a_noise_of_zero_interpolates_and_names_duplicates() -> None:
    model = models.GP(kernels.RBF(variance=1.0, lengthscale=0.3), noise=0.0)
    distribution = model.predict({}, X, DATA)
    torch.testing.assert_close(distribution.mean[0], Y, rtol=1e-6, atol=1e-6)
    twice = Dataset(torch.cat([X, X[3:4]]), torch.cat([Y, Y[3:4]]))
    with pytest.raises(DataError, match="duplicates in rows 3, 25"):
        ppgp.fit(models.GP(noise=0.0), twice, inference.MAP(), progress=False)


def test_other_columns_and_too_few_rows_raise_a_clear_error() -> None:
    posterior = ppgp.fit(models.GP(), DATA, inference.MAP(), progress=False)
    with pytest.raises(DataError, match="2 columns, as in training"):
        posterior.predict(torch.zeros(3, 5))
    for n in (1, 2):
        with pytest.raises(DataError, match="at least 3 rows"):
            ppgp.fit(models.GP(), DATA.rows(slice(0, n)), inference.MAP(), progress=False)


def test_labels_that_are_not_classes_raise_a_clear_error() -> None:
    with pytest.raises(SettingError, match="labels 0 and 1"):
        ppgp.fit(models.LogisticRegression(), DATA, inference.MAP(), progress=False)
    species = Dataset(X, ["cat", "dog", "cow", "dog", "cat"] * 5)
    with pytest.raises(
        DataError,
        match=r"numbers in y for GP, got the labels cat, cow, dog: use LogisticRegression",
    ):
        ppgp.fit(models.GP(), species, inference.MAP(), progress=False)
