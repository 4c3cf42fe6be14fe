"""Linear models against least squares and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression as ScikitLogistic
from sklearn.preprocessing import StandardScaler

import ppgp
from ppgp import inference, models, priors
from ppgp.data import Dataset


def test_flat_priors_give_least_squares_in_data_units() -> None:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    model = models.LinearRegression(priors.Flat(), priors.Flat(), priors.Flat())
    result = ppgp.fit(model, Dataset(X, y), inference.MAP(), progress=False).coefficients()
    expected, *_ = np.linalg.lstsq(np.c_[X, np.ones(len(X))], y, rcond=None)
    assert np.allclose(result["weight"][0, 0], expected[:-1], rtol=1e-4, atol=1e-4)
    assert result["bias"].item() == pytest.approx(expected[-1], rel=1e-4)


@pytest.mark.parametrize("optimizer", ["lbfgs", "newton", "adam"])
def test_map_of_logistic_regression_equals_scikit_learn(optimizer: str) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    peer = ScikitLogistic(C=1.0, tol=1e-10, max_iter=5000).fit(X, y)
    model = models.LogisticRegression(bias=priors.Flat())
    how = inference.MAP(optimizer, steps=4000)
    result = ppgp.fit(model, Dataset(X, y), how, progress=False, standardise=False).draws
    tolerance = 1e-5 if optimizer != "adam" else 1e-3
    assert np.allclose(result["weight"][0, 0], peer.coef_[0], atol=tolerance)
    assert result["bias"].item() == pytest.approx(peer.intercept_[0], abs=tolerance)


def test_a_program_predicts_when_its_y_is_left_out() -> None:
    import pyro
    import pyro.distributions as dist

    def program(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 5.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(slope * x, 0.5), obs=y)

    x = torch.linspace(-1, 1, 30, dtype=torch.float64)
    posterior = ppgp.fit(program, {"x": x, "y": 2 * x}, inference.Laplace(), progress=False)
    prediction = posterior.predict(x=torch.tensor([0.5, 1.0], dtype=torch.float64))
    assert len(prediction) == 2
    assert torch.allclose(prediction.mean, torch.tensor([1.0, 2.0], dtype=torch.float64), atol=0.05)
    pointwise = posterior.log_likelihood()
    assert pointwise.shape == (1, 1000, 30)
    slope = posterior.draws["slope"][0, 0]
    assert float(pointwise[0, 0, 3]) == pytest.approx(
        float(dist.Normal(slope * x[3], 0.5).log_prob(2 * x[3]))
    )
    assert set(posterior.to_arviz()) >= {"posterior", "log_likelihood"}
