"""The closed form of linear regression against quadrature, other libraries, NUTS and limits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from torch import Tensor

import ppgp
from ppgp import diagnostics, inference
from ppgp.data import Dataset
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.estimators import ProbabilisticRegressor, RBFFeatures
from ppgp.inference import MAP, NUTS, Exact, Gibbs, Laplace
from ppgp.models import LinearRegression
from ppgp.priors import Flat, HalfNormal, InverseGamma, Normal, StudentT

F64 = torch.float64
NIG = LinearRegression(noise=InverseGamma(2.0, 1.0), conjugate=True)
EVERY = [
    LinearRegression(),
    LinearRegression(noise=0.5),
    LinearRegression(noise=0.5, conjugate=True),
    NIG,
    LinearRegression(Flat(), Flat(), Flat()),
    LinearRegression(0.1, Normal(0.2, 2.0), HalfNormal(1.0)),
    LinearRegression(Normal(0.3, 0.5), 0.1, InverseGamma(3.0, 1.0)),
    LinearRegression(conjugate=True),
]


def table(n: int = 30, d: int = 3) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=generator, dtype=F64)
    y = (
        X @ torch.linspace(0.5, -0.5, d, dtype=F64)
        + 0.2
        + 0.6 * torch.randn(n, generator=generator, dtype=F64)
    )
    return Dataset(X, y)


def exact(model: LinearRegression, data: Dataset, draws: int = 4000) -> ppgp.Posterior:
    return ppgp.fit(model, data, Exact(draws=draws), standardise=False, progress=False)


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_exact_agrees_with_nuts(model: LinearRegression) -> None:
    data = table()
    one, two = (
        exact(model, data, 20_000),
        ppgp.fit(model, data, NUTS(draws=500), standardise=False, progress=False),
    )
    names = list(two.draws)
    for (_, x), (_, y) in zip(
        diagnostics.scalars({k: one.draws[k] for k in names}),
        diagnostics.scalars(two.draws),
        strict=True,
    ):
        for quantity, f in (("mean", np.mean), ("sd", np.std)):
            error = np.hypot(
                diagnostics.mcse(y, quantity), diagnostics.mcse(x, quantity, independent=True)
            )
            assert abs(f(x) - f(y)) < 4.5 * error
    a, b = one.predict(data.X[:5]), two.predict(data.X[:5])
    spread = float(b.std.max())
    torch.testing.assert_close(a.mean, b.mean, atol=0.02 * spread, rtol=0)
    torch.testing.assert_close(a.quantile(0.05), b.quantile(0.05), atol=0.06 * spread, rtol=0)


@pytest.mark.parametrize("model", EVERY[:4] + EVERY[5:], ids=repr)
def test_the_evidence_equals_importance_sampling(model: LinearRegression) -> None:
    """Sample from the Laplace approximation; agree within five standard errors of the estimate."""
    data = table(12, 2)
    ours = exact(model, data).log_evidence
    laplace = ppgp.fit(model, data, Laplace(draws=20_000), standardise=False, progress=False)
    ratio = (laplace.stats["lp"] - laplace.stats["log_q"]).flatten()
    weight = (ratio - ratio.max()).exp()
    estimate = float(ratio.max() + weight.mean().log())
    error = float(weight.std() / weight.mean() / len(weight) ** 0.5)
    assert ours == pytest.approx(estimate, abs=5 * error + 0.01)


def test_the_normal_inverse_gamma_posterior_equals_the_formulas() -> None:
    """Gelman et al. (2013), section 14.2.

    The prediction is Student-t, the noise inverse-gamma, and the evidence multivariate-t.
    """
    data = table(20, 2)
    posterior = exact(NIG, data, 50_000)
    Phi = np.column_stack([data.X.numpy(), np.ones(20)])
    y = data.y.numpy()
    A = Phi.T @ Phi + np.eye(3)
    mean = np.linalg.solve(A, Phi.T @ y)
    shape, rate = 2.0 + 10.0, 1.0 + 0.5 * (y @ y - mean @ A @ mean)
    x = np.array([0.3, -1.0, 1.0])
    scale = np.sqrt(rate / shape * (1 + x @ np.linalg.solve(A, x)))
    distribution = stats.t(2 * shape, x @ mean, scale)
    ours = posterior.predict(torch.tensor([[0.3, -1.0]], dtype=F64))
    assert float(ours.quantile(0.05)) == pytest.approx(distribution.ppf(0.05), rel=1e-9)
    assert float(ours.log_prob([0.7])) == pytest.approx(distribution.logpdf(0.7), rel=1e-9)
    noise = posterior.draws["noise"].flatten().numpy()
    assert stats.kstest(noise, stats.invgamma(shape, scale=rate).cdf).pvalue > 0.01
    evidence = stats.multivariate_t(np.zeros(20), 0.5 * (np.eye(20) + Phi @ Phi.T), df=4.0).logpdf(
        y
    )
    assert posterior.log_evidence == pytest.approx(evidence, rel=1e-9)


def test_least_squares_and_ridge_are_special_cases() -> None:
    data = table()
    ols = exact(LinearRegression(Flat(), Flat(), Flat()), data)
    w = np.linalg.lstsq(np.column_stack([data.X, np.ones(30)]), data.y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(ols.predict(torch.eye(3, dtype=F64)).mean, w[:3] + w[3], rtol=1e-9)
    noise, sd = 0.7, 0.4
    ridge = exact(LinearRegression(Normal(0.0, sd), Flat(), noise), data)
    peer = Ridge(alpha=noise / sd**2).fit(data.X, data.y)
    np.testing.assert_allclose(ridge.predict(data.X).mean, peer.predict(data.X), rtol=1e-9)
    model = LinearRegression(Normal(0.0, sd), Flat(), noise)
    mode = ppgp.fit(model, data, MAP(), standardise=False, progress=False)
    assert float(mode.draws["bias"]) == pytest.approx(peer.intercept_, rel=1e-6)


@pytest.mark.parametrize(
    "model",
    [NIG, LinearRegression(noise=InverseGamma(2.0, 1.0)), LinearRegression(Flat(), Flat(), Flat())],
)
def test_gibbs_agrees_with_exact(model: LinearRegression) -> None:
    data = table()
    ours = ppgp.fit(model, data, Gibbs(), standardise=False, progress=False)
    truth = exact(model, data, 20_000)
    for (_, x), (_, y) in zip(
        diagnostics.scalars(ours.draws),
        diagnostics.scalars({k: truth.draws[k] for k in ours.draws}),
        strict=True,
    ):
        error = np.hypot(diagnostics.mcse(x, "mean"), diagnostics.mcse(y, "mean", independent=True))
        assert abs(x.mean() - y.mean()) < 4.5 * error


def test_predictions_and_evidence_are_in_the_units_of_the_data() -> None:
    data = table()
    far = Dataset(data.X * 100 + 7, data.y * 1000 - 3)
    flat = LinearRegression(Flat(), Flat(), Flat())
    near, scaled = exact(flat, far), ppgp.fit(flat, far, Exact(draws=4000), progress=False)
    torch.testing.assert_close(near.predict(far.X).mean, scaled.predict(far.X).mean)
    torch.testing.assert_close(
        scaled.coefficients()["bias"].mean(), near.draws["bias"].mean(), rtol=0.05, atol=100.0
    )
    gap = (
        ppgp.fit(flat, far, MAP(), progress=False),
        ppgp.fit(flat, far, MAP(), standardise=False, progress=False),
    )
    assert gap[0].bic == pytest.approx(gap[1].bic, abs=1e-6)
    assert gap[0].aic == pytest.approx(gap[1].aic, abs=1e-6)


def test_information_criteria_have_the_usual_sign_and_scale() -> None:
    data = table()
    flat = ppgp.fit(
        LinearRegression(Flat(), Flat(), Flat()), data, MAP(), standardise=False, progress=False
    )
    A = np.column_stack([data.X, np.ones(30)])
    rss = float(np.linalg.lstsq(A, data.y.numpy(), rcond=None)[1][0])
    log_likelihood = -15 * (np.log(2 * np.pi * rss / 30) + 1)
    assert flat.bic == pytest.approx(-2 * log_likelihood + 5 * np.log(30), rel=1e-9)
    assert flat.aic == pytest.approx(-2 * log_likelihood + 10, rel=1e-9)
    laplace = ppgp.fit(
        LinearRegression(Flat(), Flat(), Flat()),
        data,
        Laplace(),
        standardise=False,
        progress=False,
    )
    assert flat.log_evidence == pytest.approx(laplace.log_evidence, abs=5e-3)


def test_a_saved_exact_posterior_predicts_the_same(tmp_path: object) -> None:
    posterior = exact(NIG, table())
    again = ppgp.load_posterior(posterior.save(f"{tmp_path}/p.safetensors"))
    new = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=F64)
    torch.testing.assert_close(
        again.predict(new).quantile(0.1), posterior.predict(new).quantile(0.1)
    )
    assert again.log_evidence == posterior.log_evidence


def test_models_without_a_closed_form_name_another_method() -> None:
    with pytest.raises(NotApplicable, match="Normal or Flat"):
        exact(LinearRegression(StudentT(3.0)), table())
    with pytest.raises(NotApplicable, match="InverseGamma"):
        ppgp.fit(LinearRegression(), table(), Gibbs(), progress=False)
    with pytest.raises(SettingError, match="conjugate"):
        exact(LinearRegression(StudentT(3.0), conjugate=True), table())


def test_flat_priors_and_data_that_do_not_determine_the_weights() -> None:
    flat = LinearRegression(Flat(), Flat(), Flat())
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    twice = Dataset(torch.cat([X, X[:, :1] + X[:, 1:2]], 1), X[:, 0], ["a", "b", "c", "a_plus_b"])
    with pytest.raises(DataError, match="a_plus_b"):
        exact(flat, twice)
    with pytest.raises(DataError, match="3 rows and 5 coefficients"):
        exact(
            flat,
            Dataset(
                torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=F64),
                [0.0, 1.0, 2.0],
            ),
        )
    assert bool(torch.isfinite(exact(LinearRegression(), twice).draws["weight"]).all())


def test_features_in_a_pipeline() -> None:
    x = np.linspace(-1, 1, 80)[:, None]
    y = np.sin(4 * x[:, 0])
    for features in (PolynomialFeatures(7, include_bias=False), RBFFeatures(12)):
        pipe = make_pipeline(features, ProbabilisticRegressor("linear", "exact")).fit(x, y)
        assert float(np.abs(pipe.predict(x) - y).max()) < 0.1
    rbf = RBFFeatures(5, lengthscale=0.3).fit(x)
    np.testing.assert_allclose(rbf.transform(rbf.centres_).diagonal(), 1.0)
    assert rbf.get_feature_names_out().tolist() == [f"rbf{j}" for j in range(5)]


def test_categories_of_a_frame_become_columns_and_new_frames_are_read_by_name() -> None:
    frame = pd.DataFrame(
        {"size": [1.0, 2.0, 3.0, 4.0] * 5, "colour": ["red", "blue", "red", "green"] * 5}
    )
    frame["y"] = frame["size"] + (frame["colour"] == "red")
    with pytest.raises(DataError, match="one_hot=True"):
        Dataset.from_frame(frame, "y")
    data = Dataset.from_frame(frame, "y", one_hot=True)
    assert data.feature_names == ("size", "colour=blue", "colour=green", "colour=red")
    posterior = ppgp.fit(LinearRegression(), data, Exact(), progress=False)
    new = pd.DataFrame({"colour": ["green", "red"], "size": [2.0, 2.0]})
    with pytest.raises(DataError, match="unused"):
        posterior.predict(new.assign(unused=0))
    by_name = posterior.predict(new).mean
    torch.testing.assert_close(
        by_name, posterior.predict(torch.tensor([[2.0, 0, 1, 0], [2.0, 0, 0, 1]], dtype=F64)).mean
    )
    with pytest.raises(DataError, match="purple"):
        posterior.predict(new.assign(colour="purple"))
    with pytest.raises(UnknownName, match="size"):
        posterior.predict(new.drop(columns="size"))
    missing = frame.copy()
    missing.loc[3, "colour"] = None
    with pytest.raises(DataError, match="colour"):
        Dataset.from_frame(missing, "y", one_hot=True)


def test_weights_of_any_scale_start_near_the_mode() -> None:
    start = LinearRegression().start(Dataset(table().X, table().y * 1e9))
    assert isinstance(start["weight"], Tensor)
    assert float(start["weight"].abs().max()) > 1e8
    assert inference.Exact().quick().draws == 20
