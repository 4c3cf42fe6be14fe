"""Absolute errors and quantiles: searches end at kinks, and spreads are those of the estimates."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, likelihoods, models, priors
from ppgp.density.kinks import averaged_precision
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


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_quantiles_by_name_are_those_of_quantile_regression(q: float) -> None:
    X, y = table(150, 2, seed=4)
    flat, law = priors.Flat(), likelihoods.AsymmetricLaplace(q)
    model = models.GLM(law, weight=flat, bias=flat)
    posterior = ppgp.fit(model, Dataset(X, y), inference.MAP(), progress=False)
    draws = posterior.draws_in("data")
    found = np.append(draws["bias"].numpy(), draws["weight"].numpy())
    np.testing.assert_allclose(found, quantile_regression(X, y, q), atol=1e-4)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, True])
def test_a_quantile_lies_between_0_and_1(q: float) -> None:
    with pytest.raises(ppgp.errors.SettingError, match="a quantile between 0 and 1, got"):
        likelihoods.AsymmetricLaplace(q)


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
    A = np.column_stack([X, np.ones(len(X))])
    sides = [0.3 * (q / (1 - q)) ** 0.5, 0.3 * ((1 - q) / q) ** 0.5]
    np.testing.assert_allclose(spread.numpy(), averaged(A, sides), rtol=1e-3, atol=1e-8)


def averaged(A: np.ndarray, sides: list[float]) -> np.ndarray:
    """Return the covariance whose precision has the density of Laplace laws at A (e_1 + e_2).

    e_1 and e_2 are draws with that covariance, and the density is relative to that at the kink.
    """
    z = np.random.default_rng(0).normal(size=200_000)
    covariance = np.zeros((A.shape[1], A.shape[1]))
    for _ in range(8):
        sd = np.sqrt(2 * np.einsum("ij,jk,ik->i", A, covariance, A))
        grid = np.linspace(0.0, sd.max() or 1.0, 20)
        both = [np.mean([np.exp(-abs(z) * s / side).mean() for side in sides]) for s in grid]
        share = np.interp(sd, grid, both)
        covariance = np.linalg.inv((A.T * share) @ A / (sides[0] * sides[1]))
    return covariance


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


@pytest.mark.parametrize("d", [1, 6])
def test_the_spread_is_that_of_the_estimate_over_simulated_tables(d: int) -> None:
    n, tables, fitted = 2_000, 1_000, 10
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    u = torch.rand(tables, n, generator=generator, dtype=torch.float64) - 0.5
    y = -0.5 * u.sign() * torch.log1p(-2 * u.abs())  # Laplace of scale .5
    A = torch.cat([torch.ones_like(X[:, :1]), X], 1)
    estimates = torch.cat([least_absolute_errors(A, part) for part in y.split(100)])
    spread = estimates.std(0)
    found = []
    for one in y[:fitted]:
        how = inference.Laplace(draws=4_000)
        draws = ppgp.fit(FLAT, Dataset(X, one), how, progress=False).draws_in("data")
        own = torch.cat([draws["bias"].reshape(-1, 1), draws["weight"].reshape(-1, d)], 1)
        found.append(own.var(0))
    share = torch.stack(found).mean(0).sqrt() / spread
    # of an sd: of 1,000 estimates, of 4,000 draws, and of a scale, whose relative error is that of
    # a mean of exponential variables
    error = (1 / (2 * tables) + (1 / 8_000 + 1 / n) / fitted) ** 0.5
    assert float((share - 1).abs().max()) < 0.05 + 3 * error
    together = float(share.square().mean().sqrt())
    assert abs(together - 1) < 0.05 - 2 * error / (d + 1) ** 0.5


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


def test_the_information_is_an_average_over_the_spread_of_mode_and_posterior() -> None:
    eye = torch.eye(3, dtype=torch.float64)
    J = eye.repeat(40, 1)
    one = torch.ones(len(J), dtype=torch.float64)
    precision = averaged_precision(0 * eye, [(J, one, one, one)], lambda own: own)
    draws = np.random.default_rng(2).normal(size=1_000_000)
    found = float(precision[0, 0])
    share = np.exp(-np.abs(draws) * (2 / found) ** 0.5).mean()
    # e^-t|Z| has an sd below .1 here, of which 1e6 draws tell the mean to 1e-4
    assert found == pytest.approx(40 * share, rel=5e-4)
    torch.testing.assert_close(precision, found * eye)


@pytest.mark.parametrize("shape", ["exponential", "affine"])
def test_the_spread_of_a_transformed_law_is_that_of_the_law(shape: str) -> None:
    X, y = table(200, 2, seed=8)
    transforms = torch.distributions.transforms

    def plain(X: torch.Tensor, y: torch.Tensor) -> None:
        weight = pyro.sample("weight", dist.Normal(X.new_zeros(2), 10.0).to_event(1))
        scale = pyro.sample("scale", dist.LogNormal(X.new_tensor(-1.0), 1.0))
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Laplace(X @ weight, scale), obs=y)

    def transformed(X: torch.Tensor, y: torch.Tensor) -> None:
        weight = pyro.sample("weight", dist.Normal(X.new_zeros(2), 10.0).to_event(1))
        scale = pyro.sample("scale", dist.LogNormal(X.new_tensor(-1.0), 1.0))
        if shape == "exponential":
            law, to = dist.Laplace(X @ weight, scale), transforms.ExpTransform()
        else:
            law, to = dist.Laplace(0 * y, 1.0), transforms.AffineTransform(X @ weight, scale)
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.TransformedDistribution(law, [to]), obs=y)

    values = torch.tensor(y).exp() if shape == "exponential" else torch.tensor(y)
    spreads = [
        ppgp.fit(program, {"X": torch.tensor(X), "y": each}, inference.Laplace(), progress=False)
        .stats["covariance"]
        .numpy()
        for program, each in ((plain, torch.tensor(y)), (transformed, values))
    ]
    np.testing.assert_allclose(spreads[1], spreads[0], rtol=1e-4, atol=1e-8)


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


def test_values_and_masks_are_broadcast_with_a_law_with_kinks() -> None:
    y = torch.tensor(np.random.default_rng(0).laplace(size=30))
    seen = torch.arange(30) < 20

    def program(y: torch.Tensor, seen: torch.Tensor) -> None:
        m = pyro.sample("m", dist.Normal(y.new_zeros(2), 1.0).to_event(1))
        with pyro.plate("columns", len(m), dim=-2), pyro.plate("rows", 30, dim=-1):
            pyro.sample("y", dist.Laplace(m[:, None], 1.0).mask(seen), obs=y)

    # one row of values and one mask, or those of each location
    spreads = [
        ppgp.fit(program, {"y": part, "seen": mask}, inference.Laplace(), progress=False).stats[
            "covariance"
        ]
        for part, mask in ((y, seen), (y.expand(2, 30).clone(), seen.expand(2, 30).clone()))
    ]
    torch.testing.assert_close(spreads[0], spreads[1])


def test_the_evidence_at_a_kink_is_known_by_map_and_laplace() -> None:
    y = torch.tensor(np.random.default_rng(3).laplace(size=61))  # the median is a kink

    def program(y: torch.Tensor) -> None:
        m = pyro.sample("m", dist.Normal(y.new_zeros(()), 5.0))
        s = pyro.sample("s", dist.LogNormal(y.new_zeros(()), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Laplace(m, s), obs=y)

    m = torch.linspace(-2, 2, 1_001, dtype=torch.float64)
    t = torch.linspace(-1.5, 1.5, 301, dtype=torch.float64)
    away = (y - m[:, None]).abs().sum(1)
    density = -61 * (math.log(2) + t) - away[:, None] * (-t).exp()
    density = (
        density + dist.Normal(0.0, 5.0).log_prob(m)[:, None] + dist.Normal(0.0, 1.0).log_prob(t)
    )
    exact = float(density.logsumexp((0, 1))) + math.log(0.004 * 0.01)
    for how in (inference.MAP(), inference.Laplace()):
        found = ppgp.fit(program, {"y": y}, how, progress=False).log_evidence
        # over tables, the difference has a mean of 0.05 and an sd of 0.16
        assert found == pytest.approx(exact, abs=0.05 + 3 * 0.16)


@pytest.mark.parametrize(
    "likelihood", [likelihoods.Laplace(), likelihoods.AsymmetricLaplace(0.8)], ids=str
)
def test_the_evidence_of_map_is_that_of_laplace_where_absolute_errors_count(
    likelihood: likelihoods.Likelihood,
) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 2))
    data = ppgp.Dataset(X, X @ [1.0, -1.0] + rng.laplace(size=80))
    model = models.GLM(likelihood)
    found, other = (
        ppgp.fit(model, data, how, progress=False).log_evidence
        for how in (inference.MAP(), inference.Laplace())
    )
    # their modes differ by the Jacobian of the scale, which has an sd of 80**-0.5
    assert found == pytest.approx(other, abs=0.1)
