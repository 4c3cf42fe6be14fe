"""The largest likelihoods of hidden Markov models of earthquakes are those that were published.

Zucchini, MacDonald & Langrock (2016), Hidden Markov Models for Time Series, second edition: counts
of table 1.1, and the negative log likelihoods with a stationary start, 342.318 of two states and
329.460 of three.
"""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.inference import MAP

COUNTS = (
    "13 14 8 10 16 26 32 27 18 32 36 24 22 23 22 18 25 21 21 14 8 11 14 23 18 17 19 20 22 19 13 "
    "26 13 14 22 24 21 22 26 21 23 24 27 41 31 27 35 26 28 36 39 21 17 22 17 19 15 34 10 15 22 18 "
    "15 20 15 22 19 16 30 27 29 23 20 16 21 21 25 16 18 15 18 14 10 15 8 15 6 11 8 7 18 16 13 12 "
    "13 20 15 16 12 18 15 16 13 15 16 11 11"
)
#: states -> negative log likelihood, rates
PUBLISHED = {2: (342.318, (15.472, 26.125)), 3: (329.460, (13.146, 19.721, 29.714))}


def stationary(transitions: Tensor) -> Tensor:
    """Return the distribution p with p = p @ transitions."""
    eye = torch.eye(len(transitions), dtype=transitions.dtype)
    return torch.linalg.solve((eye - transitions + 1.0).mT, torch.ones_like(transitions[0]))


def earthquakes(counts: Tensor, guess: Tensor) -> None:
    """Rates and transitions are parameters: MAP finds their maximum likelihood."""
    rates = pyro.param("rates", guess, constraint=dist.constraints.positive)
    start = 0.2 / (len(guess) - 1) + (0.8 - 0.2 / (len(guess) - 1)) * torch.eye(len(guess))
    transitions = pyro.param("transitions", start.double(), constraint=dist.constraints.simplex)
    weights = stationary(transitions)
    for t in pyro.markov(range(len(counts))):
        state = pyro.sample(f"state_{t}", dist.Categorical(weights))
        pyro.sample(f"y_{t}", dist.Poisson(rates[state]), obs=counts[t])
        weights = transitions[state]


@pytest.mark.parametrize("states", PUBLISHED)
def test_the_largest_likelihood_is_the_published_one(states: int) -> None:
    counts = torch.tensor([float(count) for count in COUNTS.split()], dtype=torch.float64)
    negative, rates = PUBLISHED[states]
    guess = torch.tensor(rates, dtype=torch.float64).round()
    arguments = {"counts": counts, "guess": guess}
    posterior = ppgp.fit(earthquakes, arguments, MAP(), progress=False)
    assert -float(posterior.stats["log_likelihood"]) == pytest.approx(negative, abs=6e-4)
    assert posterior.params["rates"].tolist() == pytest.approx(rates, abs=6e-4)
    # rows of transitions sum to 1
    assert posterior.stats["parameters"] == states + states * (states - 1)
