"""Linear regression with directions of the coefficients that only the prior determines."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

import ppgp
from ppgp.data import Dataset
from ppgp.errors import DataError, SettingError
from ppgp.inference import Exact, Gibbs
from ppgp.models import LinearRegression, LogisticRegression, SoftmaxRegression
from ppgp.models.linear.conjugate_linear import Decomposition, decompose
from ppgp.priors import Flat, InverseGamma, LogNormal, Normal

F64 = torch.float64
gaussian: Any = stats.multivariate_normal
S2 = 0.3  # the noise variance


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


WIDE = normals(6, 10)
CONSTANT = normals(8, 3) * torch.tensor([1.0, 0.0, 1.0], dtype=F64)
ORTHOGONAL = torch.cat(
    [torch.diag(torch.tensor([1.0, 0.0, 1.0], dtype=F64)), torch.zeros(2, 3, dtype=F64)]
)
DESIGNS = {
    "wide": WIDE,
    "constant column": CONSTANT,
    "orthogonal": ORTHOGONAL,
    "nothing": torch.zeros(5, 3, dtype=F64),
}


def decomposed(Phi: Tensor, mean: float = 0.4) -> Decomposition:
    p = Phi.shape[1]
    scales = torch.linspace(0.5, 2.0, p, dtype=F64)
    return decompose(
        Phi,
        normals(len(Phi), seed=1),
        scales**-2,
        torch.full((p,), mean, dtype=F64),
        list("abcdefghij"),
    )


@pytest.mark.parametrize("Phi", DESIGNS.values(), ids=DESIGNS.keys())
@pytest.mark.parametrize("conjugate", [False, True])
def test_moments_and_evidence_equal_the_dense_formulas(Phi: Tensor, conjugate: bool) -> None:
    d, y, p = decomposed(Phi), normals(len(Phi), seed=1), Phi.shape[1]
    prior = torch.diag(torch.linspace(0.5, 2.0, p, dtype=F64) ** 2) * (S2 if conjugate else 1.0)
    covariance = torch.linalg.inv(Phi.mT @ Phi / S2 + torch.linalg.inv(prior))
    start = torch.full((p,), 0.4, dtype=F64)
    mean = covariance @ (Phi.mT @ y / S2 + torch.linalg.solve(prior, start))
    v, variance = d.coefficients(torch.tensor([S2], dtype=F64), conjugate)
    torch.testing.assert_close((v @ d.basis.mT)[0], mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close((d.basis * variance) @ d.basis.mT, covariance, rtol=1e-9, atol=1e-12)
    distribution = gaussian(Phi @ start, Phi @ prior @ Phi.mT + S2 * torch.eye(len(y), dtype=F64))
    assert float(d.log_marginal(torch.tensor([S2], dtype=F64), conjugate)) == pytest.approx(
        distribution.logpdf(y), rel=1e-10
    )


def test_draws_and_predictions_keep_the_prior_in_the_null_space() -> None:
    """The variance at new rows is also right in the null space of the training rows."""
    data = Dataset(WIDE, normals(6, seed=1))
    model = LinearRegression(Normal(0.0, 1.0), 0.0, S2)
    posterior = ppgp.fit(model, data, Exact(draws=40_000), standardise=False, progress=False)
    covariance = torch.linalg.inv(WIDE.mT @ WIDE / S2 + torch.eye(10, dtype=F64))
    torch.testing.assert_close(
        posterior.draws["weight"][0].std(0), covariance.diagonal().sqrt(), rtol=0.02, atol=0.0
    )
    new = normals(4, 10, seed=2)
    expected = S2 + ((new @ covariance) * new).sum(1)
    torch.testing.assert_close(posterior.predict(new).variance, expected, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize(
    "model",
    [
        LinearRegression(),
        LinearRegression(conjugate=True),
        LinearRegression(noise=InverseGamma(2.0, 1.0), conjugate=True),
        LinearRegression(noise=LogNormal(0.0, 9.0), bias=Flat()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("size", [1.0, 1e7])
def test_the_evidence_equals_the_integral_over_the_noise(
    model: LinearRegression, size: float
) -> None:
    """In any units of y: residuals of 0, from too many coefficients, do not show the scale."""
    X, y = WIDE, size * normals(6, seed=1)
    posterior = ppgp.fit(model, Dataset(X, y), Exact(), standardise=False, progress=False)
    distribution = model.sites(10)["noise"].distribution(X)
    Phi = torch.cat([X, torch.ones(6, 1, dtype=F64)], 1)
    flat = isinstance(model.bias, Flat)
    K = Phi[:, :10] @ Phi[:, :10].mT if flat else Phi @ Phi.mT

    def joint(t: float) -> float:
        s = math.exp(t)
        C = (s if model.conjugate else 1.0) * K + s * torch.eye(6, dtype=F64)
        if flat:  # integrate the constant out under density 1
            solved = torch.linalg.solve(C, torch.stack([y, torch.ones_like(y)], 1))
            weight = float(solved[:, 1].sum())
            square = float(y @ solved[:, 0]) - float(solved[:, 0].sum()) ** 2 / weight
            log_p = -0.5 * (
                5 * math.log(2 * math.pi) + float(torch.logdet(C)) + math.log(weight) + square
            )
        else:
            log_p = float(gaussian(np.zeros(6), C.numpy()).logpdf(y.numpy()))
        return log_p + float(distribution.log_prob(torch.tensor(s, dtype=F64))) + t

    grid = np.linspace(-60, 80, 701)
    heights = [joint(t) for t in grid]
    highest, middle = max(heights), grid[int(np.argmax(heights))]
    total = integrate.quad(
        lambda t: math.exp(joint(t) - highest), middle - 40, middle + 40, points=[middle], limit=400
    )[0]
    assert posterior.log_evidence == pytest.approx(highest + math.log(total), rel=1e-6)


def test_gibbs_explores_the_null_space() -> None:
    data = Dataset(WIDE, normals(6, seed=1))
    model = LinearRegression(Normal(0.0, 1.0), 0.0, S2)
    result = (
        ppgp.fit(model, data, Gibbs(draws=4000), standardise=False, progress=False)
        .draws["weight"]
        .flatten(0, 1)
    )
    covariance = torch.linalg.inv(WIDE.mT @ WIDE / S2 + torch.eye(10, dtype=F64))
    torch.testing.assert_close(result.std(0), covariance.diagonal().sqrt(), rtol=0.05, atol=0.0)


def test_an_improper_posterior_of_the_noise_is_refused() -> None:
    data = Dataset(WIDE[:3], [1.0, 2.0, 4.0])
    with pytest.raises(DataError, match="noise"):
        ppgp.fit(
            LinearRegression(bias=Flat(), noise=Flat()),
            data,
            Exact(),
            standardise=False,
            progress=False,
        )


@pytest.mark.parametrize("fixed", ["weight", "bias"])
@pytest.mark.parametrize("standardise", [False, True])
def test_coefficients_with_one_of_them_fixed(fixed: str, standardise: bool) -> None:
    """The coefficients reproduce the mean of y, or the log-odds, at the training rows."""
    X = normals(30, 2)
    labels = (X[:, 0] + 0.5 * normals(30, seed=1) > 0).to(F64)
    for model, y in (
        (LinearRegression(noise=LogNormal()), X[:, 0] + 0.1 * normals(30, seed=1)),
        (LogisticRegression(), labels),
        (SoftmaxRegression(), labels),
    ):
        recipe = replace(model, **cast(Any, {fixed: 0.0}))
        if standardise and fixed == "bias":  # beside free weights it has no standardised equivalent
            with pytest.raises(SettingError, match="standardise=False"):
                ppgp.fit(recipe, Dataset(X, y), ppgp.inference.MAP(), progress=False)
            continue
        posterior = ppgp.fit(
            recipe, Dataset(X, y), ppgp.inference.MAP(), standardise=standardise, progress=False
        )
        result = posterior.coefficients()
        classes = () if not isinstance(model, SoftmaxRegression) else (2,)
        assert result["weight"].shape == (1, 1, *classes, 2)
        assert result["bias"].shape == (1, 1, *classes)
        if not classes:
            mean = X @ result["weight"][0, 0] + result["bias"][0, 0]
            distribution = posterior.predict(X)
            expected = (
                distribution.mean
                if isinstance(model, LinearRegression)
                else torch.logit(distribution.probabilities[:, 1])
            )
            torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-8)
