"""Boosting of targets that are equal in all rows, or in most."""

from __future__ import annotations

import warnings
from itertools import pairwise

import pytest
import torch
from scipy import integrate, stats

from ppgp import Dataset, fit, likelihoods, models
from ppgp.errors import ConvergenceWarning, DataError
from ppgp.inference import NaturalGradientBoosting
from ppgp.likelihoods import Exponential, Likelihood, Predicted

F64 = torch.float64
N = 60
LAWS: dict[str, Likelihood] = {
    "gaussian": likelihoods.Gaussian(noise=Predicted()),
    "laplace": likelihoods.Laplace(scale=Predicted()),
    "student": likelihoods.StudentT(df=5.0, scale=Predicted()),
    "log-normal": likelihoods.LogNormal(noise=Predicted()),
    "gamma": likelihoods.Gamma(shape=Predicted()),
    "weibull": likelihoods.Weibull(shape=Predicted()),
}
X = torch.linspace(0, 1, N, dtype=F64)[:, None]


def how(score: str) -> NaturalGradientBoosting:
    return NaturalGradientBoosting(score=score, steps=3, folds=None)


@pytest.mark.parametrize("score", ["nll", "crps"])
@pytest.mark.parametrize("name", list(LAWS))
def test_a_constant_target_is_refused(name: str, score: str) -> None:
    data = Dataset(X, torch.full((N,), 2.5, dtype=F64))
    with pytest.raises(DataError, match=r"2\.5 in every row"):
        fit(models.Boosted(LAWS[name]), data, how(score), progress=False)


def test_a_constant_target_of_known_width_is_fitted() -> None:
    data = Dataset(X, torch.full((N,), 2.5, dtype=F64))
    for law in (Exponential(), likelihoods.Gaussian(noise=0.3)):
        with pytest.warns(ConvergenceWarning, match="depends on x"):
            posterior = fit(models.Boosted(law), data, how("nll"), progress=False)
        found = posterior.predict(X)
        torch.testing.assert_close(found.mean, data.y, rtol=1e-6, atol=1e-6)


def mean_crps(share: float, sd: float) -> float:
    """Return the mean CRPS of N(0, sd^2) where this share of the targets is 0, the others 1."""

    def of(y: float) -> float:
        inside = [-30 * sd, 0.0, 30 * sd, y, 30.0]
        ends = sorted(set(inside))
        return sum(
            integrate.quad(lambda x: (stats.norm.cdf(x, 0, sd) - (x >= y)) ** 2, a, b)[0]
            for a, b in pairwise(ends)
        )

    return share * of(0.0) + (1 - share) * of(1.0)


@pytest.mark.parametrize(("equal", "noted"), [(41, False), (44, True)])
def test_many_equal_targets_are_noted_under_the_crps(equal: int, noted: bool) -> None:
    """Above a share of 1 / sqrt 2 the mean CRPS rises with the width from 0 on."""
    assert (mean_crps(equal / N, 1e-3) < mean_crps(equal / N, 1e-2)) == noted
    y = torch.where(torch.arange(N) < equal, 0.0, torch.linspace(1, 2, N, dtype=F64))
    for score in ("nll", "crps"):
        model = models.Boosted(LAWS["gaussian"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            posterior = fit(model, Dataset(X, y), how(score), progress=False)
        said = any("of the targets are 0" in note for note in posterior.warnings)
        assert said == (noted and score == "crps")
