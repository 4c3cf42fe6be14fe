"""Programs whose first search ends badly, or begins alike, are searched from many places."""

from __future__ import annotations

import warnings
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.models import Program

F64 = torch.float64
X = torch.linspace(0, 10, 60, dtype=F64)
NOISE = torch.randn(60, generator=torch.Generator().manual_seed(3), dtype=F64)
WITHIN = 0.1  # nats below the best of forty searches


def bump(x: Tensor, y: Tensor) -> None:
    """A narrow peak at an unknown place, far from the middle of the prior."""
    place = pyro.sample("place", dist.Uniform(y.new_tensor(0.0), 10.0))
    height = pyro.sample("height", dist.HalfNormal(y.new_tensor(3.0)))
    width = pyro.sample("width", dist.LogNormal(y.new_tensor(-1.0), 0.5))
    noise = pyro.sample("noise", dist.HalfNormal(y.new_tensor(1.0)))
    mean = height * torch.exp(-0.5 * ((x - place) / width) ** 2)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mean, noise), obs=y)


def decays(x: Tensor, y: Tensor) -> None:
    """Two terms that may change places, and begin alike."""
    rate = pyro.sample("rate", dist.LogNormal(y.new_zeros(2), 1.5).to_event(1))
    size = pyro.sample("size", dist.HalfNormal(y.new_full((2,), 3.0)).to_event(1))
    noise = pyro.sample("noise", dist.HalfNormal(y.new_tensor(0.5)))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal((size * torch.exp(-rate * x[:, None])).sum(1), noise), obs=y)


def network(x: Tensor, y: Tensor) -> None:
    """Hidden units, all of which begin at 0."""
    weight = pyro.sample("weight", dist.Normal(y.new_zeros(3), 2.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(y.new_zeros(3), 2.0).to_event(1))
    out = pyro.sample("out", dist.Normal(y.new_zeros(3), 1.0).to_event(1))
    noise = pyro.sample("noise", dist.HalfNormal(y.new_tensor(0.5)))
    hidden = torch.tanh((x[:, None] - 5) * weight + bias)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal((hidden * out).sum(1), noise), obs=y)


CASES: dict[str, tuple[Any, Tensor]] = {
    "bump": (bump, 2 * torch.exp(-0.5 * ((X - 8.5) / 0.3) ** 2) + 0.2 * NOISE),
    "decays": (decays, 3 * torch.exp(-3 * X) + torch.exp(-0.2 * X) + 0.05 * NOISE),
    "network": (network, torch.sin(X) + 0.1 * NOISE),
}


@pytest.mark.parametrize("name", CASES)
def test_a_search_ends_no_lower_than_the_best_of_forty(name: str) -> None:
    program, y = CASES[name]
    heights = []
    for starts in (None, 40):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ppgp.errors.ConvergenceWarning)
            how = inference.MAP(starts=starts)
            found = ppgp.fit(program, {"x": X, "y": y}, how, progress=False)
        heights.append(found.stats["log_density"])
        if starts is None:
            assert "searches ended elsewhere" in found.stats["starts_elsewhere"]
    assert heights[0] > heights[1] - WITHIN


def test_a_mean_and_a_line_are_searched_once() -> None:
    def mean(x: Tensor, y: Tensor) -> None:
        level = pyro.sample("level", dist.Normal(y.new_zeros(()), 3.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(level, 1.0), obs=y)

    def line(x: Tensor, y: Tensor) -> None:
        weight = pyro.sample("weight", dist.Normal(y.new_zeros(2), 3.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(weight[0] + weight[1] * x, 1.0), obs=y)

    for program in (mean, line):
        target = Target(Program(program), {"x": X, "y": 1.0 + 0.5 * X + NOISE})
        assert not target.begins_alike()
        end = inference.MAP().mode(target, 0).z
        assert target.explained(end) > 0.1
