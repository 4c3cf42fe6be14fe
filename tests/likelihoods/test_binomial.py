"""Events among trials: the binomial likelihood with one number of trials, and with a column."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

import ppgp
from ppgp import inference, models
from ppgp.data import Dataset
from ppgp.distributions import univariate
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.likelihoods import Bernoulli, Binomial, Poisson, ZeroInflated
from ppgp.posterior.prediction import Prediction
from ppgp.runtime.seeding import seeded

F64 = torch.float64


def number(x: object) -> Tensor:
    return torch.tensor(x, dtype=F64)


TRIALS = number([1.0, 3.0, 12.0, 400.0])
LOGITS = number([-3.0, 0.2, 1.5, -4.0])
BOUND = Binomial().for_rows(TRIALS)


def test_it_is_the_distribution_of_scipy() -> None:
    theirs = stats.binom(TRIALS.numpy(), special.expit(LOGITS.numpy()))
    d = BOUND.distribution({}, LOGITS)
    for y in (np.zeros(4), np.array([1.0, 2.0, 5.0, 11.0]), TRIALS.numpy()):
        np.testing.assert_allclose(d.log_prob(number(y)), theirs.logpmf(y), rtol=1e-11)
        np.testing.assert_allclose(-BOUND.score({}, LOGITS[None], number(y)), theirs.logpmf(y))
        np.testing.assert_allclose(univariate.cdf(d, number(y)), theirs.cdf(y), rtol=1e-11)
    torch.testing.assert_close(d.mean, TRIALS * torch.sigmoid(LOGITS))
    np.testing.assert_allclose(d.variance, theirs.var())


def test_draws_have_the_mean_and_the_variance() -> None:
    d = BOUND.distribution({}, LOGITS)
    with seeded(0):
        draws = d.sample(torch.Size([100_000]))
    error = d.variance.sqrt() / len(draws) ** 0.5
    assert bool(((draws.mean(0) - d.mean).abs() < 4 * error).all())
    torch.testing.assert_close(draws.var(0), d.variance, rtol=0.05, atol=0)
    assert bool((draws <= TRIALS).all())


def test_one_trial_is_bernoulli() -> None:
    y, f = number([0.0, 1.0, 1.0]), number([[-0.4, 30.0, -800.0]])
    one, two = Binomial(trials=1), Bernoulli()
    torch.testing.assert_close(one.score({}, f, y), two.score({}, f, y))
    torch.testing.assert_close(one.slopes({}, f, y), two.slopes({}, f, y))
    wide = number([0.5, 2.0, 9.0])
    torch.testing.assert_close(
        one.expected({}, f[0], wide, y), two.expected({}, f[0], wide, y), rtol=1e-9, atol=1e-9
    )


def test_slopes_take_the_trials_of_each_row() -> None:
    f, y = LOGITS[None].clone().requires_grad_(), number([1.0, 0.0, 7.0, 11.0])
    (g,) = torch.autograd.grad(-BOUND.score({}, f, y).sum(), f, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), f)
    first, second = BOUND.slopes({}, f.detach(), y)
    torch.testing.assert_close(first, g.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(second, h, rtol=1e-10, atol=1e-10)
    assert BOUND.metric({}, f.detach()).shape == (4, 1, 1)


def test_the_constant_of_least_score_is_the_logit_of_the_share() -> None:
    y = number([1.0, 0.0, 7.0, 11.0])
    found = BOUND.initial(y)
    assert float(found) == pytest.approx(special.logit(19 / 416))
    at = found[:, None].expand(1, 4)
    assert float(BOUND.gradient({}, at, y).sum()) == pytest.approx(0.0, abs=1e-10)
    assert bool(torch.isfinite(BOUND.initial(torch.zeros(4, dtype=F64))).all())
    assert bool(torch.isfinite(BOUND.initial(TRIALS)).all())


def test_predictions_keep_the_trials_of_their_rows() -> None:
    mean, variance = LOGITS.expand(2, 4), number([0.3, 0.1, 0.2, 0.5]).expand(2, 4)
    prediction = Prediction(BOUND.marginal({}, mean, variance))
    assert prediction.kind == "count"
    assert float(prediction[[2]].mean) == pytest.approx(float(prediction.mean[2]))
    assert bool((prediction.quantile(0.999) <= TRIALS).all())


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_the_same_number_of_trials_serves_every_model() -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.rand(60, 1, generator=g, dtype=F64)
    with seeded(0):
        y = torch.distributions.Binomial(9, logits=3 * X[:, 0] - 1).sample()
    data = Dataset(X, y)
    how, model = inference.SVI(steps=100), models.SVGP(inducing=10, likelihood=Binomial(trials=9))
    fitted = ppgp.fit(model, data, how, progress=False)
    found = fitted.predict(number([[0.1], [0.9]])).mean
    exact = 9 * torch.sigmoid(number([-0.7, 1.7]))
    assert bool(((found - exact).abs() < 1.0).all())


def with_trials(y: list[float], trials: list[float]) -> Dataset:
    """Return a table with a column of trials that no check of the table has seen."""
    data = Dataset(torch.zeros(len(y), 1, dtype=F64), number(y))
    vars(data)["trials"] = number(trials)
    return data


def test_bad_targets_and_trials_are_named() -> None:
    plain = Dataset(torch.zeros(3, 1, dtype=F64), number([0.0, 4.0, 2.0]))
    assert Binomial(trials=4).prepare(plain) == Binomial(trials=4)
    law = Binomial()
    assert law.prepare(with_trials([0.0, 4.0], [1.0, 4.0])) is law
    with pytest.raises(DataError, match=r"as many events in y as trials, got 4 of 3 in row 1"):
        Binomial(trials=3).prepare(plain)
    with pytest.raises(DataError, match="got 4 of 2 in row 1"):
        law.prepare(with_trials([0.0, 4.0], [1.0, 2.0]))
    with pytest.raises(DataError, match=r"counts 0, 1, 2, .* got 0.5 in row 0"):
        law.prepare(with_trials([0.5, 1.0], [1.0, 2.0]))
    with pytest.raises(DataError, match=r"counts 0, 1, 2, .* got -1 in row 1"):
        law.prepare(with_trials([0.0, -1.0], [1.0, 2.0]))
    for wrong in (0.0, 2.5, -3.0):
        with pytest.raises(DataError, match=f"trials 1, 2, 3, ..., got {wrong:g} in row 1"):
            law.prepare(with_trials([0.0, 0.0], [1.0, wrong]))
        with pytest.raises(SettingError, match="number of trials"):
            Binomial(trials=wrong)


def test_trials_are_needed_once_and_by_this_likelihood_alone() -> None:
    f = number([0.3])
    for use in (
        lambda: Binomial().distribution({}, f),
        lambda: Binomial().score({}, f[None], f),
        lambda: Binomial().expected({}, f, f, f),
    ):
        with pytest.raises(SettingError, match=r"trials of the rows for Binomial, got none: pass"):
            use()
    with pytest.raises(SettingError, match="also trials=5 in Binomial"):
        Binomial(trials=5).for_rows(TRIALS)
    with pytest.raises(NotApplicable, match=r"events among trials, got Poisson\(\): use likel"):
        Poisson().for_rows(TRIALS)
    assert Poisson().for_rows() == Poisson()
    assert Binomial().for_rows() is not None
    assert Binomial() == BOUND
    assert repr(BOUND) == "Binomial(trials=None)"
    with pytest.raises(SettingError, match="likelihood of counts"):
        ZeroInflated(Binomial(trials=3))
    with pytest.raises(NotApplicable, match="nll"):
        Binomial(trials=3).score({}, f[None], f, "crps")
