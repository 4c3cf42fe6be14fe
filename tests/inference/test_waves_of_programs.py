"""Frequencies and periods of users' programs: searches begin where a profile is highest."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
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
WITHIN = 0.1  # nats below the end of a search that begins at the truth

Law = Callable[[Tensor], Any]


def wave(law: Law, of_period: bool = False) -> Callable[[Tensor, Tensor], None]:
    """Return a program of one wave with a prior of its frequency, or of its period."""

    def program(t: Tensor, y: Tensor) -> None:
        zero = t.new_zeros(())
        size = pyro.sample("size", dist.Normal(zero, 2.0))
        phase = pyro.sample("phase", dist.Normal(zero, 2.0))
        turn = pyro.sample("turn", law(zero))
        noise = pyro.sample("noise", dist.HalfNormal(zero + 1.0))
        angle = t / turn if of_period else t * turn
        with pyro.plate("rows", len(t)):
            mean = size * torch.sin(2 * math.pi * angle + phase)
            pyro.sample("y", dist.Normal(mean, noise), obs=y)

    return program


def table(seed: int, n: int = 80, span: float = 10.0) -> tuple[dict[str, Tensor], float]:
    """Return times, values of a wave with noise, and its frequency."""
    generator = torch.Generator().manual_seed(seed)
    t = (span * torch.rand(n, generator=generator, dtype=F64)).sort().values
    turn = 0.3 + 1.7 * torch.rand((), generator=generator, dtype=F64)
    noise = 0.3 * torch.randn(n, generator=generator, dtype=F64)
    return {"t": t, "y": 1.5 * torch.sin(2 * math.pi * turn * t + 1.0) + noise}, float(turn)


def from_truth(program: Any, data: Mapping[str, Tensor], truth: Mapping[str, float]) -> float:
    """Return the log density at the end of a search that begins at the truth."""
    target = Target(Program(program), dict(data))
    draws = {name: torch.tensor(value, dtype=F64)[None, None] for name, value in truth.items()}
    z = target.unconstrain(draws)[0, 0]
    return ppgp.fit(program, dict(data), inference.MAP(), init=z, progress=False).stats[
        "log_density"
    ]


def fitted(program: Any, data: Mapping[str, Tensor], how: Any) -> ppgp.Posterior:
    """Fit; a wave of the other sign, half a turn later, is another mode, of which the fit warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppgp.errors.ConvergenceWarning)
        return ppgp.fit(program, dict(data), how, progress=False)


LAWS: dict[str, Law] = {
    "uniform": lambda zero: dist.Uniform(zero + 0.1, zero + 3.0),
    "log-normal": lambda zero: dist.LogNormal(zero, 0.7),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("law", LAWS)
def test_a_frequency_is_found(law: str, seed: int) -> None:
    program = wave(LAWS[law])
    data, turn = table(seed)
    found = fitted(program, data, inference.MAP())
    truth = {"size": 1.5, "phase": 1.0, "turn": turn, "noise": 0.3}
    assert found.stats["log_density"] > from_truth(program, data, truth) - WITHIN


def test_a_period_is_found() -> None:
    program = wave(lambda zero: dist.LogNormal(zero, 1.0), of_period=True)
    data, turn = table(5)
    found = fitted(program, data, inference.MAP())
    truth = {"size": 1.5, "phase": 1.0, "turn": 1 / turn, "noise": 0.3}
    assert found.stats["log_density"] > from_truth(program, data, truth) - WITHIN
    assert "of 3 searches" in found.stats["starts_elsewhere"]


def two_waves(t: Tensor, y: Tensor) -> None:
    zero = t.new_zeros(())
    size = pyro.sample("size", dist.Normal(t.new_zeros(2), 2.0).to_event(1))
    phase = pyro.sample("phase", dist.Normal(t.new_zeros(2), 2.0).to_event(1))
    turn = pyro.sample("turn", dist.Uniform(t.new_full((2,), 0.1), 3.0).to_event(1))
    noise = pyro.sample("noise", dist.HalfNormal(zero + 1.0))
    mean = (size * torch.sin(2 * math.pi * turn * t[:, None] + phase)).sum(1)
    with pyro.plate("rows", len(t)):
        pyro.sample("y", dist.Normal(mean, noise), obs=y)


def test_two_frequencies_are_found() -> None:
    data, turn = table(5)
    y = data["y"] + 0.8 * torch.cos(2 * math.pi * 2.3 * data["t"])
    values = {"t": data["t"], "y": y}
    found = fitted(two_waves, values, inference.MAP())
    truth: dict[str, Any] = {
        "size": [1.5, 0.8],
        "phase": [1.0, math.pi / 2],
        "turn": [turn, 2.3],
        "noise": 0.3,
    }
    assert found.stats["log_density"] > from_truth(two_waves, values, truth) - WITHIN


def test_chains_begin_at_the_best_frequency() -> None:
    program, (data, turn) = wave(LAWS["uniform"]), table(1)
    how = inference.NUTS(draws=100, warmup=100, chains=2)
    draws = fitted(program, data, how).draws["turn"]
    # the bound of Cramer and Rao for the frequency of a wave over a span of 10
    sd = 0.3 / 1.5 * math.sqrt(6 / 80) / (math.pi * 10)
    assert float((draws.mean(1) - turn).abs().max()) < 6 * sd


def test_other_programs_have_no_profiles() -> None:
    def line(t: Tensor, y: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(t.new_zeros(()), 1.0))
        phase = pyro.sample("phase", dist.Normal(t.new_zeros(()), 1.0))
        with pyro.plate("rows", len(t)):
            pyro.sample("y", dist.Normal(slope * torch.sin(t) + torch.sin(t + phase), 1.0), obs=y)

    data, _ = table(0)
    assert Target(Program(line), data).turning == []
