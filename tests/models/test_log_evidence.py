"""``model.log_evidence`` at given values: closed forms by hand, and the likelihood of fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import ppgp
from ppgp import Dataset, inference, kernels, models
from ppgp.errors import NotApplicable, SettingError, UnknownName

F64 = torch.float64
N = 25
GENERATOR = torch.Generator().manual_seed(0)
X = 5 + 3 * torch.randn(N, 2, generator=GENERATOR, dtype=F64)
Y = 40 + 7 * torch.sin(X[:, 0]) + torch.randn(N, generator=GENERATOR, dtype=F64)
DATA = Dataset(X, Y)
LINE = Dataset(X[:, :1], Y)
VALUES = {"kernel.variance": 30.0, "kernel.lengthscale": 1.7, "noise": 2.0}


def exponential_covariance(x: np.ndarray) -> np.ndarray:
    return 30.0 * np.exp(-np.abs(x[:, None] - x) / 1.7)


def test_it_is_the_density_of_a_normal_vector_in_the_units_of_the_data() -> None:
    x = X.numpy()
    square = ((x[:, None, :] - x) ** 2).sum(-1)
    C = 30.0 * np.exp(-0.5 * square / 1.7**2) + 2.0 * np.eye(N)
    expected = stats.multivariate_normal(np.full(N, Y.mean()), C).logpdf(Y.numpy())
    assert models.GP(kernels.RBF()).log_evidence(DATA, VALUES) == pytest.approx(expected)
    fixed = models.GP(kernels.RBF(30.0, 1.7), noise=2.0)
    assert fixed.log_evidence(DATA) == pytest.approx(expected)


def test_models_of_the_same_process_agree() -> None:
    """A Markov kernel: by states, by neighbours and by the whole covariance."""
    C = exponential_covariance(LINE.X[:, 0].numpy()) + 2.0 * np.eye(N)
    expected = stats.multivariate_normal(np.full(N, Y.mean()), C).logpdf(Y.numpy())
    for model in (
        models.GP(kernels.Matern(0.5)),
        models.StateSpaceGP(kernels.Matern(0.5)),
        models.Vecchia(kernels.Matern(0.5), neighbours=N - 1, drift="none"),
    ):
        assert model.log_evidence(LINE, VALUES) == pytest.approx(expected, abs=1e-6), model


def test_known_noise_of_the_rows_is_part_of_it() -> None:
    sd = torch.linspace(0.5, 2.0, N, dtype=F64)
    data = Dataset(LINE.X, Y, noise_sd=sd)
    C = exponential_covariance(LINE.X[:, 0].numpy()) + np.diag(2.0 + sd.numpy() ** 2)
    expected = stats.multivariate_normal(np.full(N, Y.mean()), C).logpdf(Y.numpy())
    found = models.GP(kernels.Matern(0.5)).log_evidence(data, VALUES)
    assert found == pytest.approx(expected)


FITTED: dict[str, Any] = {
    "GP": models.GP(kernels.ARD(kernels.RBF())),
    "GLM": models.GLM(),
    "LinearRegression": models.LinearRegression(),
    "Vecchia": models.Vecchia(kernels.ARD(kernels.Matern(1.5)), drift="none"),
}


@pytest.mark.parametrize("model", FITTED.values(), ids=FITTED)
def test_at_the_mode_it_is_the_likelihood_of_the_fit(model: Any) -> None:
    """The likelihood of a standardised fit, in the units of the data, from its AIC."""
    posterior = ppgp.fit(model, DATA, inference.MAP(), progress=False)
    expected = posterior.stats["parameters"] - posterior.aic / 2
    values = posterior.draws_in("data")
    assert model.log_evidence(DATA, values) == pytest.approx(expected, rel=1e-6)
    assert posterior.model.log_evidence(DATA, values) == pytest.approx(expected, rel=1e-6)


def test_values_that_do_not_suit_are_refused() -> None:
    gp = models.GP(kernels.ARD(kernels.RBF()))
    with pytest.raises(SettingError, match=r"got none for kernel\.lengthscale"):
        gp.log_evidence(DATA, {"kernel.variance": 1.0, "noise": 1.0})
    with pytest.raises(UnknownName, match=r"did you mean 'kernel\.lengthscale'"):
        gp.log_evidence(DATA, {"kernel.length": 1.0})
    with pytest.raises(SettingError, match=r"shape \[2\], got shape \[3\]"):
        gp.log_evidence(DATA, {**VALUES, "kernel.lengthscale": [1.0, 2.0, 3.0]})
    with pytest.raises(SettingError, match="positive numbers for noise"):
        gp.log_evidence(DATA, {**VALUES, "noise": -1.0})
    with pytest.raises(SettingError, match="numbers as values"):
        gp.log_evidence(DATA, {**VALUES, "noise": "large"})


def test_models_without_a_closed_form_say_so() -> None:
    for model in (models.SGPR(kernels.RBF()), models.SVGP(kernels.RBF())):
        with pytest.raises(NotApplicable, match="log evidence is known in closed form"):
            model.log_evidence(DATA, VALUES)


def test_numbers_of_python_keep_double_precision() -> None:
    values = {"kernel.variance": 1.3, "kernel.lengthscale": 0.7, "noise": 1e-4}
    exact = {name: np.float64(value) for name, value in values.items()}
    model = models.GP(kernels.RBF())
    assert model.log_evidence(LINE, values) == model.log_evidence(LINE, exact)
    scaled = 0.3 * kernels.Matern(1.5, 30.0, 1.7)
    in_time = models.StateSpaceGP(scaled, 2.0, mean=0.0).log_evidence(LINE)
    dense = models.GP(scaled, 2.0, mean=0.0).log_evidence(LINE)
    assert in_time == pytest.approx(dense, rel=1e-11)
