"""Averages over functions so uncertain that the likelihood given f is nearly a step."""

from __future__ import annotations

import math

import pytest
import torch

from ppgp.likelihoods import Bernoulli, Beta, Binomial, NegativeBinomial

F64 = torch.float64
MEANS = torch.linspace(-20, 20, 9, dtype=F64)
SDS = (3.0, 5.0, 10.0, 20.0)


@pytest.mark.parametrize("sd", SDS)
def test_the_logit_average_is_the_closed_form(sd: float) -> None:
    """E sigmoid(f) is a sum of closed forms; one trial, many trials and shares all have it."""
    variance = torch.full_like(MEANS, sd**2)
    p = Bernoulli().marginal({}, MEANS, variance).mean
    one, many = (Binomial(trials=k).marginal({}, MEANS, variance) for k in (1, 12))
    close = {"rtol": 1e-8, "atol": 1e-12}
    torch.testing.assert_close(one.log_prob(torch.ones_like(MEANS)).exp(), p, **close)
    torch.testing.assert_close(one.cdf(torch.zeros_like(MEANS)), 1 - p, **close)
    torch.testing.assert_close(one.mean, p, **close)
    torch.testing.assert_close(one.variance, p * (1 - p), **close)
    torch.testing.assert_close(many.mean, 12 * p, **close)
    torch.testing.assert_close(Beta(5.0).marginal({}, MEANS, variance).mean, p, **close)
    counts = torch.arange(13, dtype=F64)[:, None].expand(-1, len(MEANS))
    mass = many.log_prob(counts).exp()
    torch.testing.assert_close(mass.sum(0), torch.ones_like(MEANS), **close)
    torch.testing.assert_close((mass * counts).sum(0), 12 * p, **close)


@pytest.mark.parametrize("sd", SDS)
def test_the_probability_of_no_events_is_the_integral(sd: float) -> None:
    shape = 2.0
    z = torch.linspace(-12, 12, 20_001, dtype=F64)
    weight = torch.softmax(-0.5 * z.square(), 0)
    none = torch.exp(-shape * torch.nn.functional.softplus(MEANS[:, None] + sd * z - math.log(2)))
    found = NegativeBinomial(shape).marginal({}, MEANS, torch.full_like(MEANS, sd**2))
    p = found.log_prob(torch.zeros_like(MEANS)).exp()
    torch.testing.assert_close(p, (weight * none).sum(-1), rtol=1e-8, atol=1e-12)
