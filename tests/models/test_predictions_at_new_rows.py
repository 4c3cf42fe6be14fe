"""Latent sites of single rows: those of the fit at its rows, and drawn anew at other rows."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.errors import NotApplicable
from ppgp.inference import Laplace
from ppgp.models import Program

F64 = torch.float64
DRAWS = 400
X = torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=F64)
EFFECTS = torch.tensor([-3.0, 1.0, 0.5, 4.0], dtype=F64)
SPREAD, NOISE = 2.0, 0.1


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def row_effects(x: Tensor, shift: float = 0.0, y: Tensor | None = None) -> None:
    a = pyro.sample("a", dist.Normal(number(0), 3.0))
    with pyro.plate("rows", len(x)):
        e = pyro.sample("e", dist.Normal(number(0), SPREAD))
        pyro.sample("y", dist.Normal(a + x + e + shift, NOISE), obs=y)


def in_a_loop(x: Tensor, y: Tensor | None = None) -> None:
    p = pyro.sample("p", dist.Beta(number(2), number(2)))
    for i in pyro.plate("rows", len(x)):
        k = pyro.sample(f"k{i}", dist.Bernoulli(p))
        pyro.sample(f"y{i}", dist.Normal(x[i] + 5 * k, 0.3), obs=None if y is None else y[i])


def curves(x: Tensor, y: Tensor | None = None) -> None:
    """Groups, each with a curve: the plate is not one of rows."""
    with pyro.plate("groups", 4):
        e = pyro.sample("e", dist.Normal(number(0), SPREAD))
        pyro.sample("y", dist.Normal(e[:, None] + x, NOISE).to_event(1), obs=y)


def errors_in_x(x: Tensor, y: Tensor | None = None) -> None:
    with pyro.plate("rows", len(x)):
        u = pyro.sample("u", dist.Normal(number(0), 1.0))
        pyro.sample("x", dist.Normal(u, 0.3), obs=x)
        pyro.sample("y", dist.Normal(2 * u, 0.1), obs=y)


def at(program: Any, data: dict[str, Any], **draws: Tensor) -> ppgp.Posterior:
    many = {name: value.expand(1, DRAWS, *value.shape) for name, value in draws.items()}
    return ppgp.Posterior(Program(program), data, many, Laplace())


def test_effects_of_rows_are_reused_at_the_training_rows_only() -> None:
    posterior = at(row_effects, {"x": X, "y": X + EFFECTS}, a=number(0.5), e=EFFECTS)
    again = posterior.predict(x=X.clone())
    torch.testing.assert_close(again.mean, 0.5 + X + EFFECTS)
    shifted = posterior.predict(x=X, shift=7.0)  # the same rows
    torch.testing.assert_close(shifted.mean, 7.5 + X + EFFECTS)
    others = posterior.predict(x=torch.full((4,), 0.3, dtype=F64), local="new")
    sd = math.hypot(SPREAD, NOISE)
    error = 4 * sd / math.sqrt(others.draws)
    assert bool(((others.mean - 0.8).abs() < error).all())
    assert bool(((others.std - sd).abs() < error).all())


def test_discrete_sites_in_a_loop_over_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppgp.models.program.RUNS", DRAWS // 4)
    y = torch.tensor([0.0, 5.0], dtype=F64)
    posterior = at(in_a_loop, {"x": torch.zeros(2, dtype=F64), "y": y}, p=number(0.3))
    others = posterior.predict(x=torch.ones(2, dtype=F64))
    error = 4 * 5 * math.sqrt(0.3 * 0.7 / others["y0"].draws)
    for name in ("y0", "y1"):
        assert float(others[name].mean) == pytest.approx(1 + 1.5, abs=error)


def test_effects_of_groups_with_several_numbers_each_are_those_of_the_fit() -> None:
    x = X[:3]
    posterior = at(curves, {"x": x, "y": EFFECTS[:, None] + x}, e=EFFECTS)
    curve = EFFECTS[:, None] + x + 1
    torch.testing.assert_close(posterior.predict(x=x + 1).mean, curve)
    # an argument with a row for each group may be that of others
    four = at(curves, {"x": X, "y": EFFECTS[:, None] + X}, e=EFFECTS)
    with pytest.raises(NotApplicable, match="local='same' or local='new'"):
        four.predict(x=X + 1)
    same = four.predict(x=X + 1, local="same").mean
    torch.testing.assert_close(same, EFFECTS[:, None] + X + 1)


def test_new_rows_with_observations_on_their_own_latent_site_are_refused() -> None:
    posterior = at(errors_in_x, {"x": X, "y": 2 * X}, u=X)
    torch.testing.assert_close(posterior.predict(x=X).mean, 2 * X)
    with pytest.raises(NotApplicable, match="'x' observed at new rows that have 'u'"):
        posterior.predict(x=X + 1, local="new")


def test_zero_inflated_counts_predict() -> None:
    def program(n: int, y: Tensor | None = None) -> None:
        rate = pyro.sample("rate", dist.Gamma(number(2), number(1)))
        with pyro.plate("rows", n):
            pyro.sample("y", dist.ZeroInflatedPoisson(rate, gate=number(0.3)), obs=y)

    posterior = at(program, {"n": 4, "y": torch.tensor([0.0, 1, 0, 3])}, rate=number(1.5))
    result = posterior.predict(n=2)
    torch.testing.assert_close(result.mean, torch.full((2,), 0.7 * 1.5, dtype=F64))
    zero = 0.3 + 0.7 * math.exp(-1.5)
    torch.testing.assert_close(
        result.cdf(torch.zeros(2, dtype=F64)), torch.full((2,), zero, dtype=F64)
    )
