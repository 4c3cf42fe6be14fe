"""Models of pyro.contrib.forecast: forecasts as by Pyro's Forecaster, and leave-one-out."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.contrib.forecast import Forecaster, ForecastingModel
from torch import Tensor

import ppgp
from ppgp.errors import NotApplicable

T, LATER = 30, 5
COVARIATES = torch.randn(T + LATER, 1, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(T, 2, generator=torch.Generator().manual_seed(1))
DATA = (1 + 0.1 * NOISE[:, :1].cumsum(0)) + 0.5 * COVARIATES[:T] + 0.1 * NOISE[:, 1:]


class Walk(ForecastingModel):
    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        with self.time_plate:
            step = pyro.sample("step", dist.Normal(0.0, 0.2))
        line = 1 + step.cumsum(-1).unsqueeze(-1) + slope.unsqueeze(-1) * covariates
        self.predict(dist.Normal(0.0, 0.1), line)


@pytest.fixture(scope="module")
def fitted() -> tuple[ppgp.Posterior, Forecaster]:
    with pyro.get_param_store().scope():
        model = Walk()
        pyro.set_rng_seed(0)
        forecaster = Forecaster(model, DATA, COVARIATES[:T], num_steps=300, log_every=0)
        data = {"data": DATA, "covariates": COVARIATES[:T]}
        return ppgp.from_guide(model, forecaster.guide, data), forecaster


def test_longer_covariates_are_a_forecast(fitted: tuple[ppgp.Posterior, Forecaster]) -> None:
    posterior, forecaster = fitted
    found = posterior.predict(covariates=COVARIATES)
    assert len(found) == LATER
    pyro.set_rng_seed(1)
    with pyro.get_param_store().scope():
        reference = forecaster(DATA, COVARIATES, num_samples=1000)[..., 0].reshape(1000, LATER)
    sd = reference.std(0)
    assert bool(((found.mean - reference.mean(0)).abs() < 4.5 * sd * (2 / 1000) ** 0.5).all())
    assert bool(((found.std / sd - 1).abs() < 4.5 * (1 / 1000) ** 0.5).all())


def test_the_same_covariates_are_the_data_again(
    fitted: tuple[ppgp.Posterior, Forecaster],
) -> None:
    posterior, _ = fitted
    found = posterior.predict()
    slope, step = posterior.theta["slope"][:, None], posterior.theta["step"]
    line = 1 + step.cumsum(-1) + slope * COVARIATES[:T, 0]
    error = 4.5 * 0.1 / 1000**0.5
    assert float((found.mean - line.mean(0)).abs().max()) < error


def test_each_time_is_left_out(fitted: tuple[ppgp.Posterior, Forecaster]) -> None:
    posterior, _ = fitted
    rows = posterior.pointwise()["residual"]
    assert rows.shape[-1] == T
    slope, step = posterior.theta["slope"][:, None], posterior.theta["step"]
    line = 1 + step.cumsum(-1) + slope * COVARIATES[:T, 0]
    exact = dist.Normal(line, 0.1).log_prob(DATA[:, 0])
    torch.testing.assert_close(rows[0], exact, atol=1e-3, rtol=1e-3)
    assert len(ppgp.psis_loo(posterior).pointwise) == T


class Hidden(ForecastingModel):
    """A level with noise, as one hidden Markov model that is integrated out."""

    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        step = pyro.sample("step", dist.LogNormal(-2.0, 0.5))
        one, first = torch.eye(1), dist.Normal(torch.ones(1), 0.1).to_event(1)
        steps = dist.Normal(torch.zeros(1), step.unsqueeze(-1)).to_event(1)
        noise = dist.Normal(torch.zeros(1), 0.1).to_event(1)
        law = dist.GaussianHMM(first, one, steps, one, noise, duration=zero_data.size(-2))
        self.predict(law, slope.unsqueeze(-1) * covariates)


def test_noise_that_is_a_hidden_markov_model_is_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppgp.models.program.RUNS", 100)
    model = Hidden()
    with pyro.get_param_store().scope():
        pyro.set_rng_seed(0)
        forecaster = Forecaster(model, DATA, COVARIATES[:T], num_steps=200, log_every=0)
        data = {"data": DATA, "covariates": COVARIATES[:T]}
        posterior = ppgp.from_guide(model, forecaster.guide, data, draws=100)
        pyro.set_rng_seed(1)
        reference = forecaster(DATA, COVARIATES, num_samples=1000)[..., 0].reshape(1000, LATER)
    found = posterior.predict(covariates=COVARIATES)
    sd = reference.std(0)
    assert bool(
        ((found.mean - reference.mean(0)).abs() < 4.5 * sd * (1 / 100 + 1 / 1000) ** 0.5).all()
    )
    # scales that vary between draws make tails heavier than the normal
    assert bool(((found.std / sd - 1).abs() < 7 * (1 / 200 + 1 / 2000) ** 0.5).all())
    with pytest.raises(NotApplicable, match="several rows, of which one is left out"):
        ppgp.psis_loo(posterior)
