"""Predictions of labels: probabilities, and advice where only numbers have a statistic."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from torch.distributions import Distribution

from ppgp.errors import NotApplicable
from ppgp.posterior.prediction import Prediction

LOGITS = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
DISTRIBUTIONS: dict[str, Distribution] = {
    "Categorical logits": dist.Categorical(logits=LOGITS),
    "Categorical probs": dist.Categorical(probs=LOGITS.softmax(-1)),
    "Bernoulli logits": dist.Bernoulli(logits=LOGITS[..., 0]),
    "Bernoulli probs": dist.Bernoulli(probs=LOGITS[..., 0].sigmoid()),
    "far Bernoulli": dist.Bernoulli(logits=40 * LOGITS[..., 0]),
}
every = pytest.mark.parametrize("distribution", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS.keys())


@every
def test_probabilities_sum_to_one_and_are_the_mean_over_draws(distribution: Distribution) -> None:
    prediction = Prediction(distribution)
    p = prediction.probabilities
    assert prediction.kind == "classes"
    torch.testing.assert_close(p.sum(-1), torch.ones(4).double())
    each = torch.stack(
        [
            distribution.log_prob(torch.full((4,), float(k)).double()).exp().mean(0)
            for k in range(p.shape[1])
        ],
        -1,
    )
    torch.testing.assert_close(p, each, rtol=1e-9, atol=1e-12)


@every
def test_log_prob_is_the_log_of_the_probability_of_the_label(distribution: Distribution) -> None:
    y = torch.tensor([0, 1, 1, 0])
    p = Prediction(distribution).probabilities.gather(1, y[:, None])[:, 0]
    torch.testing.assert_close(Prediction(distribution).log_prob(y), p.log(), rtol=1e-9, atol=1e-12)


@every
@pytest.mark.parametrize(
    "what",
    [
        "cdf",
        "quantile",
        "interval",
        "crps",
        "pit",
        "mean",
        "std",
        "variance",
        "epistemic",
        "aleatoric",
    ],
)
def test_statistics_of_numbers_are_refused_with_advice(
    distribution: Distribution, what: str
) -> None:
    arguments = {
        "cdf": [np.zeros(4)],
        "crps": [np.zeros(4)],
        "pit": [np.zeros(4)],
        "quantile": [0.5],
        "interval": [],
    }
    prediction = Prediction(distribution)
    with pytest.raises(NotApplicable, match=r"use \.probabilities, label sets"):
        getattr(prediction, what)(*arguments[what]) if what in arguments else getattr(
            prediction, what
        )


def test_probabilities_of_numbers_are_refused_with_advice() -> None:
    with pytest.raises(NotApplicable, match="got a continuous distribution"):
        Prediction(dist.Normal(torch.zeros(1, 2), torch.ones(1, 2))).probabilities


@every
def test_samples_are_labels_with_their_probabilities(distribution: Distribution) -> None:
    k = 6_000
    draws = Prediction(distribution).sample(k)
    p = Prediction(distribution).probabilities
    shares = torch.stack([(draws == label).double().mean(0) for label in range(p.shape[1])], -1)
    torch.testing.assert_close(shares.sum(-1), torch.ones(4).double())
    assert bool(((shares - p).abs() <= 5 * (p * (1 - p) / k).sqrt() + 1e-9).all())


@every
def test_indexing_keeps_labels_and_probabilities(distribution: Distribution) -> None:
    names = ("a", "b", "c")
    part = Prediction(distribution, classes=names)[[3, 1]]
    assert part.classes == names
    torch.testing.assert_close(part.probabilities, Prediction(distribution).probabilities[[3, 1]])


def test_probabilities_of_a_bernoulli_near_one_keep_their_precision() -> None:
    p = Prediction(dist.Bernoulli(logits=torch.full((1, 1), 45.0).double())).probabilities
    assert float(p[0, 0]) == pytest.approx(np.exp(-45.0), rel=1e-12)
