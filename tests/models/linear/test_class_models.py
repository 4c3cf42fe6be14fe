"""Logistic and softmax regression against scikit-learn, published fits and quadrature.

Also data that no fit can describe: separated classes, one class, collinear columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression as Peer

import ppgp
from ppgp import diagnostics, metrics
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from ppgp.inference import MAP, NUTS, SVI, Laplace
from ppgp.models import LogisticRegression, SoftmaxRegression
from ppgp.priors import Flat, Normal

F64 = torch.float64
FLAT = LogisticRegression(Flat(), Flat())
# Spector & Mazzeo (1980): grade point average, economics test score, whether taught by the new
# method, whether improved
SPECTOR = np.fromstring(
    """
    2.66 20 0 0  2.89 22 0 0  3.28 24 0 0  2.92 12 0 0  4.00 21 0 1  2.86 17 0 0  2.76 17 0 0
    2.87 21 0 0  3.03 25 0 0
    3.92 29 0 1  2.63 20 0 0  3.32 23 0 0  3.57 23 0 0  3.26 25 0 1  3.53 26 0 0  2.74 19 0 0
    2.75 25 0 0  2.83 19 0 0
    3.12 23 1 0  3.16 25 1 1  2.06 22 1 0  3.62 28 1 1  2.89 14 1 0  3.51 26 1 0  3.54 24 1 1
    2.83 27 1 1  3.39 17 1 1
    2.67 24 1 0  3.65 21 1 1  4.00 23 1 1  3.10 21 1 0  2.39 19 1 1
    """,
    sep=" ",
).reshape(-1, 4)


def cancer(columns: int = 5) -> Dataset:
    data = ppgp.load("breast_cancer")
    return Dataset(data.X[:, :columns], data.y).standardised(scale_y=False)[0]


def iris(columns: int = 4) -> Dataset:
    data = ppgp.load("iris")
    return Dataset(data.X[:, :columns], data.y).standardised(scale_y=False)[0]


def fit(model: Any, data: Dataset, how: Any) -> ppgp.Posterior:
    return ppgp.fit(model, data, how, standardise=False, progress=False)


@pytest.mark.parametrize("optimizer", ["newton", "lbfgs"])
def test_the_fit_of_the_spector_data_is_as_published(optimizer: str) -> None:
    """Compare with the coefficients and the log likelihood that Stata's logit prints."""
    posterior = fit(FLAT, Dataset(SPECTOR[:, :3], SPECTOR[:, 3]), MAP(optimizer))
    result = [*posterior.draws["weight"].flatten().tolist(), float(posterior.draws["bias"])]
    assert result == pytest.approx([2.82611, 0.0951577, 2.37869, -13.0213], rel=2e-5)
    assert posterior.stats["log_likelihood"] == pytest.approx(-12.8896, abs=1e-4)
    assert posterior.aic == pytest.approx(2 * 12.8896 + 8, abs=2e-4)
    assert posterior.bic == pytest.approx(2 * 12.8896 + 4 * np.log(32), abs=2e-4)


@pytest.mark.parametrize("optimizer", ["newton", "lbfgs"])
def test_the_unpenalised_fit_equals_scikit_learn(optimizer: str) -> None:
    data = cancer()
    peer = Peer(C=np.inf, tol=1e-12, max_iter=10_000).fit(data.X, data.y)
    posterior = fit(FLAT, data, MAP(optimizer))
    np.testing.assert_allclose(posterior.draws["weight"][0, 0], peer.coef_[0], rtol=1e-4)
    np.testing.assert_allclose(
        posterior.predict(data.X).probabilities[:, 1], peer.predict_proba(data.X)[:, 1], atol=1e-6
    )


def test_newton_and_lbfgs_agree_to_the_precision_of_the_gradient() -> None:
    one, two = (fit(FLAT, cancer(), MAP(o)).draws["weight"] for o in ("newton", "lbfgs"))
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["newton", "lbfgs", "gd"])
def test_map_is_the_ridge_fit(optimizer: str) -> None:
    data = cancer()
    peer = Peer(C=1.0, tol=1e-12, max_iter=10_000).fit(data.X, data.y)
    posterior = fit(LogisticRegression(Normal(0.0, 1.0), Flat()), data, MAP(optimizer, steps=5000))
    np.testing.assert_allclose(
        posterior.draws["weight"][0, 0], peer.coef_[0], rtol=1e-3 if optimizer == "gd" else 1e-5
    )


@pytest.mark.parametrize("optimizer", ["newton", "lbfgs"])
def test_softmax_equals_multinomial_of_scikit_learn(optimizer: str) -> None:
    data = iris()
    peer = Peer(C=1.0, tol=1e-12, max_iter=10_000).fit(data.X, data.y)
    posterior = fit(SoftmaxRegression(Normal(0.0, 1.0), Flat()), data, MAP(optimizer))
    np.testing.assert_allclose(posterior.draws["weight"][0, 0], peer.coef_, atol=1e-5)
    np.testing.assert_allclose(
        posterior.predict(data.X).probabilities, peer.predict_proba(data.X), atol=1e-6
    )


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("optimizer", ["gd", "sgd", "adam"])
def test_slow_optimisers_reach_the_optimum_of_the_fast_ones(optimizer: str) -> None:
    """Compare the log density; SGD keeps some noise, and must be within a hundredth per row."""
    data = cancer(2)
    best = fit(FLAT, data, MAP("newton")).stats["log_density"]
    slow = fit(FLAT, data, MAP(optimizer, steps=4000)).stats["log_density"]
    assert best - 1e-2 * data.n <= slow <= best + 1e-9


def test_curvature_equals_autograd() -> None:
    generator = torch.Generator().manual_seed(0)
    three = iris()
    two = Dataset(three.X, (three.y > 0).to(F64))
    for model, data in (
        (LogisticRegression(), two),
        (FLAT, two),
        (LogisticRegression(0.3), two),
        (SoftmaxRegression(), three),
        (SoftmaxRegression(Flat(), Flat()), three),
        (SoftmaxRegression(Normal(0.0, 2.0), 0.1), three),
    ):
        target = Target(model.prepare(data), data)
        assert target.has_curvature
        z = 0.5 * torch.randn(target.dim, generator=generator, dtype=F64)
        value, gradient, H = target.curvature(z)
        expected = target.value_and_grad(z)
        torch.testing.assert_close(value, expected[0])
        torch.testing.assert_close(gradient, expected[1])
        torch.testing.assert_close(H, target.hessian(z))


def test_laplace_evidence_against_quadrature() -> None:
    """Compare with quadrature in two dimensions; the error of Laplace is of order 1 / n."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 1, generator=generator, dtype=F64)
    data = Dataset(x, (torch.rand(40, generator=generator) < torch.sigmoid(x[:, 0])).to(F64))
    target = Target(LogisticRegression(), data)
    laplace = fit(LogisticRegression(), data, Laplace())
    top = float(laplace.stats["lp"].max())

    grid, step = np.linspace(-4, 4, 81, retstep=True)  # far out the density is 0, and smooth
    z = torch.tensor([[w, b] for w in grid for b in grid], dtype=F64)
    integral = float((target.value_and_grad_batch(z)[0] - top).exp().sum()) * step**2
    assert laplace.log_evidence == pytest.approx(top + np.log(integral), abs=1 / 40)


def test_the_probit_approximation_is_near_the_average_over_draws() -> None:
    data = cancer()
    posterior = fit(LogisticRegression(), data, Laplace(draws=4000))
    average, probit = (
        posterior.predict(data.X).probabilities[:, 1],
        posterior.probit(data.X).probabilities[:, 1],
    )
    assert float((average - probit).abs().max()) < 0.02
    plug_in = torch.sigmoid(
        data.X @ posterior.draws["weight"].mean((0, 1)) + posterior.draws["bias"].mean()
    )
    assert bool(
        ((probit - 0.5).abs() <= (plug_in - 0.5).abs() + 1e-9).all()
    )  # the exponent is -1/2, which moves it towards one half
    with pytest.raises(NotApplicable, match="use predict"):
        fit(SoftmaxRegression(), iris(), MAP("newton")).probit(iris().X)


def test_all_methods_agree_on_iris() -> None:
    data = iris(2)
    reference = fit(SoftmaxRegression(), data, NUTS(draws=500, warmup=300))
    p = reference.predict(data.X).probabilities
    for how in (Laplace(), SVI("multivariate_normal")):
        assert (
            float(
                (fit(SoftmaxRegression(), data, how).predict(data.X).probabilities - p).abs().max()
            )
            < 0.05
        )
    assert metrics.accuracy(reference.predict(data.X), data.y) > 0.78
    assert max(diagnostics.rhat(x) for _, x in diagnostics.scalars(reference.draws)) < 1.02


def test_coefficients_of_all_classes_are_in_the_units_of_the_data() -> None:
    raw = ppgp.load("iris")
    raw = Dataset(raw.X[:, :2] * 10 + 3, raw.y)
    with pytest.warns(ConvergenceWarning):
        posterior = ppgp.fit(SoftmaxRegression(Flat(), Flat()), raw, MAP("newton"), progress=False)
    parts = posterior.coefficients()
    assert parts["weight"].shape == (1, 1, 3, 2)
    logits = raw.X @ parts["weight"][0, 0].mT + parts["bias"][0, 0]
    torch.testing.assert_close(torch.softmax(logits, -1), posterior.predict(raw.X).probabilities)
    assert bool((parts["weight"][0, 0, 0] == 0).all())  # class 0 is the reference


@pytest.mark.parametrize("optimizer", ["newton", "lbfgs", "gd", "adam", "sgd"])
def test_separated_classes_stay_finite_and_warn(optimizer: str) -> None:
    data = Dataset([[-2.0], [-1.0], [1.0], [2.0], [3.0]], [0.0, 0.0, 1.0, 1.0, 1.0])
    with pytest.warns(ConvergenceWarning, match="separate the classes perfectly"):
        posterior = fit(FLAT, data, MAP(optimizer))
    assert bool(torch.isfinite(posterior.draws["weight"]).all())
    assert not fit(LogisticRegression(), data, MAP("newton")).warnings


def test_quasi_separation_is_distinguished_from_separation() -> None:
    data = Dataset([[-1.0], [0.0], [0.0], [1.0], [2.0]], [0.0, 0.0, 1.0, 1.0, 1.0])
    with pytest.warns(ConvergenceWarning, match="in part"):
        fit(FLAT, data, MAP("newton"))


def test_data_that_cannot_be_fitted_raise_a_clear_error() -> None:
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    y = torch.tensor([0.0, 1.0] * 10)
    with pytest.raises(DataError, match="at least two classes"):
        fit(FLAT, Dataset(X, torch.ones(20)), MAP())
    with pytest.raises(DataError, match="twice"):
        fit(FLAT, Dataset(torch.cat([X, 2 * X[:, :1]], 1), y, ["a", "b", "c", "twice"]), MAP())
    with pytest.raises(DataError, match="5 coefficients and 4 rows"):
        fit(FLAT, Dataset(torch.randn(4, 4, dtype=F64), [0.0, 1.0, 0.0, 1.0]), MAP())
    with pytest.raises(SettingError, match="labels"):
        fit(SoftmaxRegression(), Dataset(X, y + 0.5), MAP())
    with pytest.raises(SettingError, match="number of classes"):
        SoftmaxRegression().sites(3)
    with pytest.warns(ConvergenceWarning, match="diverge|not finite"):
        fit(
            SoftmaxRegression(Normal(0.0, 1.0), Normal(0.0, 1.0)),
            Dataset(1e4 * X, y),
            MAP("sgd", learning_rate=1e12),
        )


def test_a_label_that_is_not_in_the_training_rows_is_refused() -> None:
    posterior = fit(SoftmaxRegression(), iris(2), MAP("newton"))
    with pytest.raises(DataError, match="label"):
        metrics.nll(posterior.predict(iris(2).X[:2]), [0.0, 3.0])


def test_numbers_as_labels_are_referred_to_regression() -> None:
    X = torch.linspace(0.0, 1.0, 20, dtype=F64)[:, None]
    with pytest.raises(SettingError, match=r"labels 0 to 27 in .*got 20 values: .*for regression"):
        fit(SoftmaxRegression(), Dataset(X, 27.3 * X[:, 0]), MAP())
