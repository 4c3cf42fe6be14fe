"""Counts: the negative binomial likelihood, and counts with more zeros."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from ppgp import priors
from ppgp.data import Dataset
from ppgp.distributions import univariate
from ppgp.distributions.negative_binomial import MeanNegativeBinomial, shape_information
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.likelihoods import (
    Gaussian,
    NegativeBinomial,
    Poisson,
    Predicted,
    ZeroInflated,
)
from ppgp.posterior.prediction import Prediction
from ppgp.runtime.seeding import seeded

F64 = torch.float64


def number(x: object) -> Tensor:
    return torch.tensor(x, dtype=F64)


@pytest.mark.parametrize("shape", [1e-3, 0.4, 2.5, 80.0, 1e4])
@pytest.mark.parametrize("mean", [1e-3, 0.3, 5.0, 3e4])
def test_the_negative_binomial_is_that_of_scipy(shape: float, mean: float) -> None:
    d = MeanNegativeBinomial(number([math.log(mean)]), number([shape]))
    theirs = stats.nbinom(shape, shape / (shape + mean))
    y = np.unique(np.floor([0, 1, 2, 0.5 * mean, mean, 3 * mean + 4]))
    mine = d.log_prob(number(y)[:, None])[:, 0].numpy()
    np.testing.assert_allclose(mine, theirs.logpmf(y), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(univariate.cdf(d, number(y)[:, None])[:, 0], theirs.cdf(y), 1e-9)
    assert float(d.mean) == pytest.approx(mean)
    assert float(d.variance) == pytest.approx(mean + mean**2 / shape)


@pytest.mark.parametrize("shape", [1e9, 1e12, 1e15, 1e100])
def test_the_limit_of_large_shapes_is_poisson(shape: float) -> None:
    """The distance is of order mean^2 / shape, and no digits are lost on the way."""
    f, y = number([-3.0, 0.0, 2.5, 6.0]), number([0.0, 2.0, 11.0, 390.0])
    near, limit = NegativeBinomial(shape), Poisson()
    far = 2e6 / shape
    torch.testing.assert_close(
        near.score({}, f[None], y), limit.score({}, f[None], y), rtol=1e-12, atol=1e-11 + far
    )
    for one, other in zip(near.slopes({}, f[None], y), limit.slopes({}, f[None], y), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-11 + far)
    wide = number([0.3, 0.1, 0.5, 0.2])
    torch.testing.assert_close(
        near.expected({}, f, wide, y), limit.expected({}, f, wide, y), rtol=1e-9, atol=1e-9 + far
    )
    below = univariate.cdf(near.distribution({}, f), y)
    torch.testing.assert_close(
        below, univariate.cdf(limit.distribution({}, f), y), rtol=1e-7 + far, atol=0
    )


@pytest.mark.parametrize("shape", [1e-2, 0.7, 6.0, 300.0])
@pytest.mark.parametrize("mean", [0.05, 2.0, 40.0])
def test_the_information_of_the_shape_is_a_sum_over_counts(shape: float, mean: float) -> None:
    """That of log shape: the mean of minus the second derivative, by trigamma functions."""
    d = stats.nbinom(shape, shape / (shape + mean))
    y = np.arange(0, int(d.isf(1e-14)) + 10)
    sds = special.polygamma(1, shape) - special.polygamma(1, shape + y)
    exact = shape**2 * ((d.pmf(y) * sds).sum() - mean / (shape * (shape + mean)))
    found = float(shape_information(number([shape]), number([math.log(mean)])))
    assert found == pytest.approx(exact, rel=1e-6)


def test_the_information_keeps_its_digits_at_large_shapes() -> None:
    """It tends to mean^2 / (2 shape^2)."""
    for shape in (1e6, 1e10):
        found = float(shape_information(number([shape]), number([math.log(3.0)])))
        assert found == pytest.approx(4.5 / shape**2, rel=1e-4)


def test_zero_inflation_is_a_mixture() -> None:
    """Lambert (1992): mean, variance, density and cdf, also of averages over f."""
    law, f = ZeroInflated(Poisson(), 0.35), number([0.7, 1.9])
    d, rate = law.distribution({}, f), f.exp()
    torch.testing.assert_close(d.mean, 0.65 * rate)
    torch.testing.assert_close(d.variance, 0.65 * rate * (1 + 0.35 * rate))
    k = torch.arange(60, dtype=F64)[:, None]
    mass = d.log_prob(k).exp()
    torch.testing.assert_close(mass.sum(0), torch.ones_like(rate))
    torch.testing.assert_close(univariate.cdf(d, k), mass.cumsum(0))
    torch.testing.assert_close(mass[0], 0.35 + 0.65 * torch.exp(-rate))
    wide = law.marginal({}, f, number([0.5, 0.2]))
    plain = Poisson().marginal({}, f, number([0.5, 0.2]))
    torch.testing.assert_close(wide.log_prob(k)[1:], plain.log_prob(k)[1:] + math.log(0.65))
    assert float(wide.cdf(number([-1.0, -1.0])).abs().max()) == 0.0


def test_draws_have_the_mean_and_the_zeros() -> None:
    law = ZeroInflated(NegativeBinomial(shape=1.5), probability=0.25)
    d = law.distribution({}, number([1.2]))
    with seeded(0):
        draws = d.sample(torch.Size([200_000]))[:, 0]
    error = float(draws.std()) / math.sqrt(len(draws))
    assert abs(float(draws.mean()) - float(d.mean)) < 4 * error
    none = float(d.log_prob(number([0.0])).exp())
    assert abs(float((draws == 0).double().mean()) - none) < 4 * math.sqrt(none / len(draws))


def test_a_predicted_probability_is_on_the_logit_scale() -> None:
    law = ZeroInflated(NegativeBinomial(Predicted()), Predicted(level=0.2))
    assert law.predicted == ("shape", "probability")
    assert law.latents == 3
    f = number([[0.3], [0.5], [-0.4]])
    level = law.levels()["probability"].prior
    d = law.distribution({"probability": number(level), "shape": number(2.0)}, f)
    assert float(torch.sigmoid(d.gate_logits)) == pytest.approx(  # type: ignore[attr-defined]
        1 / (1 + math.exp(-(math.log(0.25) - 0.4)))
    )
    assert float(d.counts.concentration) == pytest.approx(2 * math.exp(0.5))  # type: ignore[attr-defined]


def test_predictions_of_uncertain_functions_take_rows_and_quantiles() -> None:
    law = ZeroInflated(Poisson(), Predicted())
    mean, variance = number([[[0.5, 1.0], [-1.0, 0.3]]]), number([[[0.2, 0.4], [0.5, 0.1]]])
    prediction = Prediction(law.marginal({"probability": number([0.3])}, mean, variance))
    assert prediction.kind == "count"
    assert float(prediction[[1]].mean) == pytest.approx(float(prediction.mean[1]))
    top = prediction.quantile(0.9)
    assert bool((prediction.cdf(top) >= 0.9).all())
    assert bool((prediction.cdf(top - 1) < 0.9).all())


def test_bad_targets_and_settings_are_named() -> None:
    X = torch.zeros(3, 1, dtype=F64)
    for law in (NegativeBinomial(), ZeroInflated(Poisson())):
        with pytest.raises(DataError, match=r"counts 0, 1, 2, .* got -1 in row 1"):
            law.prepare(Dataset(X, number([0.0, -1.0, 2.0])))
        with pytest.raises(DataError, match=r"got 1.5 in row 2"):
            law.prepare(Dataset(X, number([0.0, 1.0, 1.5])))
    for wrong in (Gaussian(), ZeroInflated(Poisson())):
        with pytest.raises(SettingError, match="likelihood of counts"):
            ZeroInflated(wrong)
    for given in (0.0, 1.0, -0.2, 1.7, priors.LogNormal(), Predicted(level=1.2)):
        with pytest.raises(SettingError, match="above 0 and below 1"):
            ZeroInflated(Poisson(), given)
    with pytest.raises(SettingError, match="positive number for shape"):
        NegativeBinomial(-1.0).sites()
    for refused in (NegativeBinomial(1.0), ZeroInflated(Poisson(), 0.5)):
        with pytest.raises(NotApplicable, match="nll"):
            refused.score({}, number([[0.0]]), number([1.0]), "crps")


def test_sites_are_those_of_the_counts_and_the_probability() -> None:
    law = ZeroInflated(NegativeBinomial(shape=priors.InUnitsOfData(priors.LogNormal(0.0, 1.0))))
    assert set(law.sites()) == {"shape", "probability"}
    moved = law.in_units(3.0)
    assert set(moved.sites()) == {"shape", "probability"}
    assert moved.given("probability") == law.probability
