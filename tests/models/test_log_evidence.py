"""``model.log_evidence`` at given values: closed forms by hand, and the likelihood of fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats

import ppgp
from ppgp import Dataset, inference, kernels, models, priors
from ppgp.density.target import Target
from ppgp.errors import NotApplicable, NumericalError, SettingError, UnknownName

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


# -- after MAP ------------------------------------------------------------------------------------

SMOOTH = models.GP(kernels.ARD(kernels.Matern(2.5)))


def test_after_map_it_is_that_of_laplace() -> None:
    for model, data in ((SMOOTH, DATA), (models.GP(kernels.Matern(0.5)), LINE)):
        found = ppgp.fit(model, data, inference.MAP(), progress=False)
        exact = ppgp.fit(model, data, inference.Laplace(draws=10), progress=False)
        assert "log_evidence" not in found.stats
        assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-4)


def test_after_map_it_takes_some_three_gradients_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ppgp.fit(SMOOTH, DATA, inference.MAP(), progress=False)
    calls = []

    def counted(target: Target, *arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return gradient(target, *arguments, **options)

    gradient = Target.value_and_grad
    monkeypatch.setattr(Target, "value_and_grad", counted)
    numbers = sum(draws[0, 0].numel() for draws in found.draws.values())
    assert np.isfinite(found.log_evidence)
    assert 3 * numbers < len(calls) <= 3 * numbers + 12


def test_after_map_it_is_exact_where_the_density_is_gaussian() -> None:
    noise, weight = 2.0, priors.Normal(0.0, 1.0)
    model = models.LinearRegression(weight=weight, bias=priors.Normal(0.0, 1.0), noise=noise)
    options: dict[str, Any] = {"progress": False, "standardise": False}
    found = ppgp.fit(model, DATA, inference.MAP(), **options)
    design = np.c_[np.ones(N), X.numpy()]
    C = design @ design.T + noise * np.eye(N)
    expected = stats.multivariate_normal(np.zeros(N), C).logpdf(Y.numpy())
    assert found.log_evidence == pytest.approx(expected, abs=1e-5)


def test_after_map_it_is_refused_where_there_is_no_peak() -> None:
    def program(y: torch.Tensor) -> None:
        a = pyro.sample("a", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
        pyro.factor("ring", 0.5 * a.square().sum() - (a.square().sum() - 4.0) ** 2)

    found = ppgp.fit(program, {"y": torch.zeros(3, dtype=F64)}, inference.MAP(), progress=False)
    with pytest.raises(NumericalError, match="curves down in every direction"):
        found.log_evidence


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_methods_without_an_evidence_say_so() -> None:
    options: dict[str, Any] = {
        "how": inference.NUTS(draws=5, warmup=5, chains=1),
        "progress": False,
    }
    drawn = ppgp.fit(models.LinearRegression(), DATA, **options)
    with pytest.raises(NotApplicable, match="a method that knows the evidence"):
        drawn.log_evidence
    assert not hasattr(drawn, "log_evidence")
