"""Absolute errors and quantiles: searches end at kinks, and spreads are those of the estimates."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, likelihoods, models, priors
from ppgp.density.kinks import share_of_information
from ppgp.inference.optimise import scipy_search
from ppgp.inference.optimise.kink_search import to_kink

FLAT = models.GLM(likelihoods.Laplace(), weight=priors.Flat(), bias=priors.Flat())


def table(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 0.7 + X @ np.linspace(-2.0, 1.0, d) + rng.laplace(scale=0.5, size=n)


def quantile_regression(X: np.ndarray, y: np.ndarray, q: float) -> np.ndarray:
    """Return the intercept and the weights of Koenker & Bassett (1978), by statsmodels."""
    quantreg = pytest.importorskip("statsmodels.regression.quantile_regression")
    A = np.column_stack([np.ones(len(X)), X])
    return quantreg.QuantReg(y, A).fit(q=q, max_iter=20_000, p_tol=1e-10).params


@pytest.mark.parametrize("how", [inference.MAP(), inference.MAP("newton")], ids=repr)
@pytest.mark.parametrize(("n", "d"), [(40, 1), (200, 3), (1_000, 6)])
def test_medians_are_those_of_quantile_regression(how: Any, n: int, d: int) -> None:
    X, y = table(n, d, seed=n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = ppgp.fit(FLAT, Dataset(X, y), how, progress=False)
    draws = posterior.draws_in("data")
    found = np.append(draws["bias"].numpy(), draws["weight"].numpy())
    np.testing.assert_allclose(found, quantile_regression(X, y, 0.5), atol=1e-4)
    assert posterior.stats["at_kink"]


def quantiles(X: torch.Tensor, y: torch.Tensor, q: float) -> None:
    """Yu & Moyeed (2001): the loss of a quantile is that of an asymmetric Laplace law."""
    wide = X.new_tensor(100.0)
    weight = pyro.sample("weight", dist.Normal(0.0, wide).expand([X.shape[1]]).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.0, wide))
    asymmetry = X.new_tensor((q / (1 - q)) ** 0.5)
    with pyro.plate("rows", len(X)):
        law = dist.AsymmetricLaplace(X @ weight + bias, X.new_tensor(0.3), asymmetry)
        pyro.sample("y", law, obs=y)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_a_program_finds_quantiles(q: float) -> None:
    X, y = table(150, 2, seed=3)
    data = {"X": torch.tensor(X), "y": torch.tensor(y), "q": q}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws = ppgp.fit(quantiles, data, inference.MAP(), progress=False).draws
        spread = ppgp.fit(quantiles, data, inference.Laplace(), progress=False).stats["covariance"]
    found = np.append(draws["bias"].numpy(), draws["weight"].numpy())
    # the prior moves the mode to the next row at most, by far less than the tolerance
    np.testing.assert_allclose(found, quantile_regression(X, y, q), atol=1e-4)
    # the information of the location is 1 / scale^2, whatever the asymmetry
    A = np.column_stack([X, np.ones(len(X))])
    exact = 0.3**2 * np.linalg.inv(A.T @ A)
    share = spread.numpy().diagonal() / exact.diagonal()
    np.testing.assert_allclose(share, share[0], rtol=1e-4)
    t = (3 / 150) ** 0.5
    expected = np.exp(-np.abs(np.random.default_rng(0).normal(size=1_000_000)) * t).mean()
    np.testing.assert_allclose(1 / share[0], expected, rtol=2e-3)


def test_a_program_and_a_glm_have_the_same_spread() -> None:
    X, y = table(300, 2, seed=5)

    def program(X: torch.Tensor, y: torch.Tensor) -> None:
        wide = X.new_tensor(10.0)
        weight = pyro.sample("weight", dist.Normal(0.0, wide).expand([2]).to_event(1))
        bias = pyro.sample("bias", dist.Normal(0.0, wide))
        scale = pyro.sample("scale", dist.LogNormal(X.new_tensor(-1.0), 1.0))
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Laplace(X @ weight + bias, scale), obs=y)

    ten = priors.Normal(0.0, 10.0)
    model = models.GLM(likelihoods.Laplace(priors.LogNormal(-1.0, 1.0)), weight=ten, bias=ten)
    own = {"standardise": False, "progress": False}
    how = inference.Laplace()
    glm = ppgp.fit(model, Dataset(X, y), how, **own).stats["covariance"]
    data = {"X": torch.tensor(X), "y": torch.tensor(y)}
    other = ppgp.fit(program, data, how, progress=False).stats["covariance"]
    torch.testing.assert_close(
        glm.diagonal().sort()[0], other.diagonal().sort()[0], rtol=1e-3, atol=0
    )


def least_absolute_errors(X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the coefficients [table, p] of tables y [table, n], by Schlossmacher (1973)."""
    outer = (X[:, :, None] * X[:, None, :]).reshape(len(X), -1)
    beta = y.new_zeros(len(y), X.shape[1])
    steps = 80
    for step in range(steps):
        w = 1 / (y - beta @ X.mT).abs().clamp_min(10 ** (-1 - 5 * step / steps))
        A = (w @ outer).reshape(len(y), X.shape[1], X.shape[1])
        beta = torch.linalg.solve(A, (w * y) @ X)
    return beta


def test_the_spread_is_that_of_the_estimate_over_simulated_tables() -> None:
    n, d, tables = 2_000, 2, 1_000
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d - 1, generator=generator, dtype=torch.float64)
    u = torch.rand(tables, n, generator=generator, dtype=torch.float64) - 0.5
    y = -0.5 * u.sign() * torch.log1p(-2 * u.abs())  # Laplace of scale .5
    A = torch.cat([torch.ones_like(X[:, :1]), X], 1)
    # 1,000 estimates tell their sd to 2.2 %
    spread = least_absolute_errors(A, y).std(0)
    found = []
    for one in y[:20]:
        posterior = ppgp.fit(FLAT, Dataset(X, one), inference.Laplace(), progress=False)
        draws = posterior.draws_in("data")
        found.append(torch.stack([draws["bias"].std(), draws["weight"].std()]))
    # each sd has the error of 1,000 draws, and of the scale of 2,000 rows: 3 %, so their mean .7 %
    torch.testing.assert_close(torch.stack(found).mean(0), spread, rtol=0.05, atol=0)


def test_a_lasso_is_zero_where_scikit_learn_has_it() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 5))
    y = X @ np.array([2.0, 0.0, -1.0, 0.0, 0.0]) + 0.5 * rng.normal(size=60)
    exact = linear.Lasso(alpha=0.2, fit_intercept=False, tol=1e-12).fit(X, y).coef_

    def program(X: torch.Tensor, y: torch.Tensor) -> None:
        scale = X.new_tensor(1 / (60 * 0.2))
        weight = pyro.sample("weight", dist.Laplace(0.0, scale).expand([5]).to_event(1))
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Normal(X @ weight, 1.0), obs=y)

    data = {"X": torch.tensor(X), "y": torch.tensor(y)}
    posterior = ppgp.fit(program, data, inference.MAP(), progress=False)
    np.testing.assert_allclose(posterior.draws["weight"][0, 0].numpy(), exact, atol=1e-5)
    assert posterior.warnings == ()


def test_a_slope_is_no_kink() -> None:
    curvature = np.array([1.0, 1e4])

    def smooth(z: np.ndarray) -> tuple[float, np.ndarray]:
        return -0.5 * float((curvature * z**2).sum()), -curvature * z

    assert to_kink(smooth, np.array([0.3, 0.01]), lambda slope: slope < 1e-3) is None


def test_the_information_that_is_left_is_an_average_over_the_spread() -> None:
    eye = torch.eye(3, dtype=torch.float64)
    t = (3 / 50) ** 0.5
    draws = np.random.default_rng(2).normal(size=1_000_000)
    share = share_of_information(-40.0 * eye, 0.0 * eye, 50)
    assert share == pytest.approx(np.exp(-np.abs(draws) * t).mean(), rel=2e-3)


def test_smooth_recipes_are_not_searched_for_kinks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> None:
        raise AssertionError("a search for a kink")

    monkeypatch.setattr(scipy_search, "to_kink", refused)
    X = torch.linspace(-2, 2, 60)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ppgp.fit(models.GP(), Dataset(X, X[:, 0].square()), inference.MAP(), progress=False)


def test_masked_values_do_not_count_in_the_spread() -> None:
    rng = np.random.default_rng(0)
    y = torch.tensor(rng.laplace(size=200))
    seen = torch.arange(200) < 10

    def program(y: torch.Tensor, seen: torch.Tensor) -> None:
        m = pyro.sample("m", dist.Normal(torch.tensor(0.0, dtype=torch.float64), 10.0))
        with pyro.plate("rows", len(y)), pyro.poutine.mask(mask=seen):
            pyro.sample("y", dist.Laplace(m, 1.0), obs=y)

    spreads = [
        ppgp.fit(program, {"y": part, "seen": mask}, inference.Laplace(), progress=False)
        .stats["covariance"]
        .item()
        for part, mask in ((y, seen), (y[:10], seen[:10]))
    ]
    assert spreads[0] == pytest.approx(spreads[1], rel=1e-6)
