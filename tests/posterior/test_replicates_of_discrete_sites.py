"""Replicates of the data use discrete sites that are inferred from the data."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.inference import Laplace
from ppgp.models import Program

F64 = torch.float64
Y = torch.tensor([5.1, 4.0, 4.8, 5.5], dtype=F64)
DRAWS = 60


def sign(n: int, y: Tensor | None = None) -> None:
    sd = pyro.sample("sd", dist.HalfNormal(torch.ones((), dtype=F64)))
    up = pyro.sample("up", dist.Bernoulli(torch.tensor(0.5, dtype=F64)))
    with pyro.plate("rows", n):
        pyro.sample("y", dist.Normal(5 * (2 * up - 1), sd), obs=y)


def signs(n: int, y: Tensor | None = None) -> None:
    sd = pyro.sample("sd", dist.HalfNormal(torch.ones((), dtype=F64)))
    with pyro.plate("rows", n):
        up = pyro.sample("up", dist.Bernoulli(torch.tensor(0.5, dtype=F64)))
        pyro.sample("y", dist.Normal(5 * (2 * up - 1), sd), obs=y)


@pytest.mark.parametrize(
    ("program", "side"),
    [(sign, [1, 1, 1, 1]), (signs, [1, -1, 1, -1])],
    ids=["all rows", "per row"],
)
def test_they_are_on_the_side_of_the_data(program: object, side: list[int]) -> None:
    """The odds of the other side are exp(-80) at the least; the prior odds are 1."""
    sides = torch.tensor(side, dtype=F64)
    sd = torch.full((1, DRAWS), 0.5, dtype=F64)
    posterior = ppgp.Posterior(
        Program(program),  # type: ignore[arg-type]
        {"n": 4, "y": Y * sides},
        {"sd": sd},
        Laplace(),
    )
    tree = posterior.to_arviz(predictive=True, log_likelihood=False)
    replicates = torch.as_tensor(tree["posterior_predictive"]["y"].values)
    assert replicates.shape == (1, DRAWS, 4)
    error = (replicates.mean((0, 1)) - 5 * sides).abs()
    assert bool((error < 5 * 0.5 / DRAWS**0.5).all())
    assert replicates.std(1).mean() == pytest.approx(0.5, rel=0.3)
