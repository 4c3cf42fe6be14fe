"""Shares between 0 and 1, and positive targets whose mean is the inverse of f."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

import ppgp
from ppgp import inference, models
from ppgp.data import Dataset
from ppgp.distributions import univariate
from ppgp.errors import DataError, NotApplicable, UnknownName
from ppgp.likelihoods import Beta, Gamma, Predicted
from ppgp.likelihoods.beta import MeanBeta
from ppgp.posterior.prediction import Prediction
from ppgp.runtime.seeding import seeded

F64 = torch.float64


def number(x: object) -> Tensor:
    return torch.tensor(x, dtype=F64)


@pytest.mark.parametrize("precision", [0.05, 1.3, 40.0, 1e5])
@pytest.mark.parametrize("logit", [-6.0, 0.0, 1.7])
def test_the_beta_distribution_is_that_of_scipy(precision: float, logit: float) -> None:
    d, mean = MeanBeta(number([logit]), number([precision])), special.expit(logit)
    theirs = stats.beta(mean * precision, special.expit(-logit) * precision)
    y = np.array([1e-9, 0.1, mean, 0.5, 0.97])
    mine = d.log_prob(number(y)[:, None])[:, 0].numpy()
    np.testing.assert_allclose(mine, theirs.logpdf(y), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        univariate.cdf(d, number(y)[:, None])[:, 0].numpy(), theirs.cdf(y), rtol=1e-9
    )
    assert float(d.mean) == pytest.approx(mean)
    assert float(d.variance) == pytest.approx(theirs.var())
    median = Prediction(MeanBeta(number([[logit]]), number([[precision]]))).quantile(0.5)
    assert float(median) == pytest.approx(theirs.ppf(0.5), rel=1e-6, abs=1e-12)


def test_a_precise_beta_is_normal() -> None:
    """Its density loses no digits at a precision of 1e14."""
    precision, mean = 1e14, 0.3
    sd = math.sqrt(mean * (1 - mean) / precision)
    f = number([math.log(mean / (1 - mean))])
    for z in (-1.5, 0.0, 2.0):
        y = number([mean + sd * z])
        found = float(MeanBeta(f, number([precision])).log_prob(y))
        assert found == pytest.approx(stats.norm.logpdf(float(y), mean, sd), abs=1e-5)


def test_the_information_is_that_of_the_source() -> None:
    """Ferrari & Cribari-Neto (2004), section 3, by polygamma functions."""
    precision = 3.7
    for f in (-3.0, 0.4):
        mean = special.expit(f)
        w, a, b = mean * (1 - mean), mean * precision, (1 - mean) * precision
        one, two, both = (special.polygamma(1, v) for v in (a, b, precision))
        found = Beta(Predicted()).metric({}, number([[f], [math.log(precision)]]))[0]
        assert float(found[0, 0]) == pytest.approx((precision * w) ** 2 * (one + two))
        cross = precision**2 * w * (mean * one - (1 - mean) * two)
        assert float(found[0, 1]) == pytest.approx(cross)
        own = precision**2 * (mean**2 * one + (1 - mean) ** 2 * two - both)
        assert float(found[1, 1]) == pytest.approx(own)


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.3, 1.2])
def test_shares_outside_the_interval_are_refused(wrong: float) -> None:
    data = Dataset(torch.zeros(3, 1, dtype=F64), number([0.5, 0.2, wrong]))
    with pytest.raises(DataError, match=f"above 0 and below 1 in y, got {wrong:g} in row 2"):
        Beta().prepare(data)


def test_shares_have_no_crps() -> None:
    with pytest.raises(NotApplicable, match="nll"):
        Beta(2.0).score({}, number([[0.0]]), number([0.5]), "crps")


# -- the inverse link -----------------------------------------------------------------------------


def test_the_mean_of_the_inverse_link_is_one_over_f() -> None:
    law, f = Gamma(2.5, link="inverse"), number([0.2, 4.0])
    d = law.distribution({}, f)
    torch.testing.assert_close(d.mean, 1 / f)
    torch.testing.assert_close(d.variance, 1 / (2.5 * f.square()))
    assert bool(torch.isnan(law.distribution({}, -f).log_prob(number([1.0, 1.0]))).all())


def test_both_links_are_one_distribution() -> None:
    """Scores agree at f and at 1 / exp(f), and natural gradients of the mean too."""
    f, y = number([[0.3, -1.0], [0.2, 1.1]]), number([1.7, 0.1])
    other = torch.stack([torch.exp(-f[0]), f[1]])
    log, inverse = Gamma(Predicted()), Gamma(Predicted(), link="inverse")
    for kind in ("nll", "crps"):
        torch.testing.assert_close(log.score({}, f, y, kind), inverse.score({}, other, y, kind))
        one, two = log.natural({}, f, y, kind), inverse.natural({}, other, y, kind)
        torch.testing.assert_close(one[1], two[1])
        torch.testing.assert_close(-one[0] * other[0], two[0])


def test_the_start_of_the_inverse_link_is_one_over_the_mean() -> None:
    y = number([0.5, 2.0, 3.5])
    assert float(Gamma(1.3, link="inverse").initial(y)) == pytest.approx(0.5)


def test_gaussian_functions_and_sums_are_refused() -> None:
    law = Gamma(2.0, link="inverse")
    zero, one = number([0.0]), number([1.0])
    with pytest.raises(NotApplicable, match="any real number"):
        law.expected({}, zero, one, one)
    with pytest.raises(NotApplicable, match="any real number"):
        law.marginal({}, zero, one)
    for kind in (models.SVGP, models.Boosted):
        with pytest.raises(NotApplicable, match="use link='log'"):
            kind(likelihood=law)
    with pytest.raises(UnknownName, match="sqrt"):
        Gamma(link="sqrt")


def test_a_network_whose_outputs_are_positive_has_the_inverse_link() -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.rand(80, 1, generator=g, dtype=F64)
    with seeded(0):
        y = torch.distributions.Gamma(5.0, 5.0 * (1 + 3 * X[:, 0])).sample()
    network = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Softplus()).double()
    law = Gamma(shape=5.0, link="inverse")
    model = models.NeuralRegression(network, law)
    how = inference.MAP("adam", steps=200)
    fitted = ppgp.fit(model, Dataset(X, y.double()), how, progress=False, standardise=False)
    new = number([[0.0], [1.0]])
    assert bool((fitted.predict(new).mean > 0).all())
    assert float(fitted.predict(new).mean.diff()) < 0
