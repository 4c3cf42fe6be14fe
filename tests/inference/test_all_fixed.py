"""Models whose hyperparameters are all numbers: every method gives one draw."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import ppgp
from ppgp import conformal, inference, kernels, likelihoods, models
from ppgp.data import Dataset
from ppgp.errors import NotApplicable
from ppgp.inference import Inference

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.0, 4.0, (30, 2))
Y = np.sin(X[:, 0]) + 0.1 * RANDOM.normal(size=30)
DATA = Dataset(X, Y)
LABELS = Dataset(X, (Y > 0).astype(float))
KERNEL = kernels.RBF(1.3, 0.7)
GP = models.GP(KERNEL, noise=0.2, mean=0.4)
EVERY: list[Inference] = [
    inference.Ensemble(members=2),
    inference.Exact(draws=20),
    inference.Gibbs(draws=20),
    inference.HMC(draws=20),
    inference.Laplace(draws=20),
    inference.Laplace(draws=20, structure="kron"),
    inference.MAP(),
    inference.MAP("adam", steps=3),
    inference.MAP("gauss_newton"),
    inference.MAP("kfac", steps=3),
    inference.MAP("newton", starts=2),
    inference.MCDropout(),
    inference.MetropolisHastings(draws=20),
    inference.NUTS(draws=20),
    inference.NaturalGradientBoosting(),
    inference.NUTS(draws=20, engine="pyro"),
    inference.Pathfinder(),
    inference.SGHMC(draws=20),
    inference.SGLD(draws=20),
    inference.SVI(steps=3),
    inference.SVI(guide="normal", method="deterministic"),
    inference.SWAG(),
]


def fit(model: Any, data: Dataset, how: Inference | None = None, **options: Any) -> ppgp.Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ppgp.fit(
            model, data, inference.MAP() if how is None else how, progress=False, **options
        )


def covariance(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    square = ((A[:, None, :] - B[None, :, :]) ** 2).sum(-1)
    return 1.3 * np.exp(-0.5 * square / 0.7**2)


def test_every_method_is_tried() -> None:
    named = {getattr(inference, name) for name in inference.__all__} - {Inference}
    assert {type(how) for how in EVERY} == {
        kind for kind in named if isinstance(kind, type) and issubclass(kind, Inference)
    }


@pytest.mark.parametrize("how", EVERY, ids=repr)
def test_every_method_gives_one_draw(how: Inference, tmp_path: Path) -> None:
    posterior = fit(GP, DATA, how, standardise=False)
    C = covariance(X, X) + 0.2 * np.eye(30)
    evidence = stats.multivariate_normal(np.full(30, 0.4), C).logpdf(Y)
    assert (posterior.shape, posterior.draws, posterior.mcmc, posterior.how) == (
        (1, 1),
        {},
        False,
        how,
    )
    assert posterior.log_evidence == pytest.approx(evidence, rel=1e-10)
    assert (posterior.bic, posterior.aic) == (
        pytest.approx(-2 * evidence),
        pytest.approx(-2 * evidence),
    )
    new = RANDOM.uniform(0.0, 4.0, (7, 2))
    K = covariance(X, new)
    predicted = posterior.predict(new)
    assert predicted.mean.numpy() == pytest.approx(
        0.4 + K.T @ np.linalg.solve(C, Y - 0.4), abs=1e-10
    )
    assert predicted.variance.numpy() == pytest.approx(
        1.5 - (K * np.linalg.solve(C, K)).sum(0), abs=1e-10
    )
    inverse = np.linalg.inv(C)
    left_out = Y - inverse @ (Y - 0.4) / np.diag(inverse)
    assert posterior.loo().mean.numpy() == pytest.approx(left_out, abs=1e-10)
    densities = stats.norm(left_out, np.diag(inverse) ** -0.5).logpdf(Y)
    assert posterior.log_likelihood().numpy().ravel() == pytest.approx(densities, abs=1e-9)
    again = ppgp.load_posterior(posterior.save(tmp_path / "numbers"))
    assert torch.equal(again.predict(new).mean, predicted.mean)
    assert again.log_evidence == posterior.log_evidence


def test_every_later_step_works_on_a_fit_without_free_hyperparameters() -> None:
    posterior = fit(GP, DATA)
    new, rows = (
        posterior.predict(X[:5]),
        Dataset(RANDOM.uniform(0.0, 4.0, (25, 2)), RANDOM.normal(size=25)),
    )
    region = ppgp.calibrate(conformal.Normalized(), posterior.predict(rows.X), rows.y)(
        new, level=0.8
    )
    assert bool(torch.isfinite(region.lower).all())  # type: ignore[union-attr]
    assert posterior.predict(X[:5], joint=True).sample(3).shape == (3, 5)
    assert posterior.pathwise(4)(X[:5]).shape == (4, 5)
    assert len(posterior.summary()) == 0
    assert posterior.to_arviz(predictive=True)["posterior_predictive"]["y"].shape == (1, 1, 30)
    assert "nothing is uncertain" in repr(ppgp.diagnose(posterior))
    left_out = ppgp.psis_loo(posterior)
    assert left_out.elpd == pytest.approx(float(posterior.log_likelihood().sum()))  # type: ignore[union-attr]
    table = ppgp.compare({"one": posterior, "other": posterior}, test=rows, loo=True).to_frame()
    assert table["verdict"].tolist() == ["unjudged", "unjudged"]
    assert table["elpd_loo"].tolist() == pytest.approx([left_out.elpd] * 2)
    with pytest.raises(NotApplicable, match="at least 100 draws"):
        ppgp.conformal_bayes(fit(models.LinearRegression(0.3, 0.1, 0.2), DATA), X[:3])


def test_kriging_with_a_fitted_variogram_matches_the_kriging_equations() -> None:
    """Ordinary kriging by its own equations, and the restricted likelihood."""
    where, zinc = 1000 * X, 300 + 90 * (np.sin(3 * X[:, 0]) + np.cos(3 * X[:, 1]))
    result = ppgp.fit_variogram(
        ppgp.empirical_variogram(Dataset(where, zinc)), kernels.Exponential()
    )
    posterior = fit(result.kriging(), Dataset(where, zinc))
    sill, length, nugget = result.variogram.variance, result.variogram.lengthscale, result.nugget  # type: ignore[attr-defined]

    def k(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return sill * np.exp(-np.linalg.norm(A[:, None] - B[None], axis=-1) / length)

    new = 1000 * RANDOM.uniform(0.0, 4.0, (6, 2))
    C, K, one = k(where, where) + nugget * np.eye(30), k(where, new), np.ones(30)
    full = np.block([[C, one[:, None]], [one[None], np.zeros((1, 1))]])
    weights = np.linalg.solve(full, np.vstack([K, np.ones((1, 6))]))
    mean, variance = (
        weights[:30].T @ zinc,
        sill - (weights * np.vstack([K, np.ones((1, 6))])).sum(0),
    )
    assert posterior.latent(new).mean.numpy() == pytest.approx(mean, rel=1e-8)
    assert posterior.predict(new).variance.numpy() == pytest.approx(variance + nugget, rel=1e-7)
    inverse = np.linalg.inv(C)
    P = inverse - np.outer(inverse @ one, inverse @ one) / (one @ inverse @ one)
    restricted = (
        zinc @ P @ zinc
        + np.linalg.slogdet(C)[1]
        + np.log(one @ inverse @ one)
        + 29 * np.log(2 * np.pi)
    )
    assert posterior.log_evidence == pytest.approx(-0.5 * restricted, rel=1e-8)


@pytest.mark.parametrize(
    ("model", "data", "name"),
    [
        (models.LinearRegression(0.3, 0.1, 0.2), DATA, "log_evidence"),
        (models.LogisticRegression(0.3, 0.1), LABELS, "log_evidence"),
        (models.SoftmaxRegression(0.3, 0.1), LABELS, "log_evidence"),
        # a bound has another name than the evidence, a profile likelihood has none
        (models.SGPR(KERNEL, 8, noise=0.2), DATA, "elbo"),
        (models.Kriging(KERNEL, 0.2, estimator="ml"), DATA, None),
        (models.Kriging(KERNEL, 0.2, drift="none", estimator="ml"), DATA, "log_evidence"),
    ],
    ids=repr,
)
def test_stats_name_the_density_of_each_model(model: Any, data: Dataset, name: str | None) -> None:
    result = fit(model, data)
    assert {"log_evidence", "elbo"} & set(result.stats) == ({name} if name else set())
    if name:
        assert result.stats[name] == result.stats["log_density"]


@pytest.mark.parametrize(
    "how",
    [inference.SVI(steps=30), inference.SVI(method="deterministic")],
    ids=["steps", "deterministic"],
)
def test_an_svgp_without_free_hyperparameters_still_fits_q(how: Inference) -> None:
    """With Gaussian noise, the ELBO of the best q is the collapsed bound."""
    Z = torch.as_tensor(X[:8])
    sparse = fit(models.SGPR(KERNEL, noise=0.2, Z=Z), DATA, standardise=False)
    model = models.SVGP(KERNEL, likelihood=likelihoods.Gaussian(0.2), Z=Z, learn=False)
    result = fit(model, DATA, how, standardise=False)
    assert result.stats["elbo"] == pytest.approx(sparse.stats["elbo"], abs=1e-5)
    assert result.predict(X[8:]).mean.numpy() == pytest.approx(
        sparse.predict(X[8:]).mean.numpy(), abs=1e-4
    )
    labels = models.SVGP(KERNEL, likelihood=likelihoods.Bernoulli(), Z=Z, learn=False)
    assert fit(labels, LABELS, how, standardise=False).predict(X[8:]).probabilities.shape == (22, 2)


def test_svi_refuses_a_program_of_params_alone() -> None:
    with pytest.raises(NotApplicable, match="use MAP"):
        fit(models.SGPR(KERNEL, 8, noise=0.2, learn=True), DATA, inference.SVI(steps=3))
    held = pytest.warns(ppgp.errors.ConvergenceWarning, match="inducing")
    with held:
        result = ppgp.fit(
            models.SGPR(KERNEL, 8, noise=0.2, learn=True),
            DATA,
            inference.NUTS(draws=20),
            progress=False,
        )
    assert result.shape == (1, 1)
