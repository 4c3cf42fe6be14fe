"""Predictions of a user's program: inferred discrete sites, repeated runs, seed, nested plates."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.errors import DataError, NotApplicable
from ppgp.models import Program

F64 = torch.float64
RUNS = 250


@pytest.fixture(autouse=True)
def fewer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppgp.models.program.RUNS", RUNS)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def at(program: Any, data: dict[str, Any], **draws: Tensor) -> ppgp.Posterior:
    """Return a posterior with the given draws, [draw, ...]."""
    return ppgp.Posterior(
        Program(program),
        data,
        {name: value[None] for name, value in draws.items()},
        inference.Laplace(),
    )


def sign(n: int, y: Tensor | None = None) -> None:
    sd = pyro.sample("sd", dist.HalfNormal(number(1)))
    up = pyro.sample("up", dist.Bernoulli(number(0.5)))
    with pyro.plate("rows", n):
        pyro.sample("y", dist.Normal(5 * (2 * up - 1), sd), obs=y)


@pytest.mark.parametrize("draws", [1, 20])
def test_a_discrete_site_of_all_rows_is_inferred_from_the_data(draws: int) -> None:
    """With equal prior odds, the data determine +5 in one case and odds of 3 in the other."""
    clear = at(
        sign, {"n": 2, "y": numbers(5.1, 4.0)}, sd=torch.full((draws,), 1.1, dtype=F64)
    ).predict(n=3)
    assert bool(((clear["y"].mean - 5).abs() < 1e-6).all())
    assert bool(((clear["y"].std - 1.1).abs() < 1e-6).all())
    close = math.log(3) / 5  # two observations with sd 2 at this value give odds of 3
    result = at(
        sign, {"n": 2, "y": numbers(close, close)}, sd=torch.full((draws,), 2.0, dtype=F64)
    ).predict(n=3)
    runs = result["y"].draws
    assert runs >= RUNS
    assert float(result["up"].probabilities[0, 1]) == pytest.approx(
        0.75, abs=4 * math.sqrt(0.75 * 0.25 / runs)
    )


def lifted(x: Tensor, y: Tensor | None = None) -> None:
    p = pyro.sample("p", dist.Beta(number(2), number(2)))
    with pyro.plate("rows", len(x)):
        k = pyro.sample("k", dist.Bernoulli(p))
        pyro.sample("y", dist.Normal(x + 5 * k, number(0.3)), obs=y)


def test_a_discrete_site_of_rows_is_reused_only_for_the_same_rows() -> None:
    x = torch.zeros(4, dtype=F64)
    posterior = at(lifted, {"x": x, "y": numbers(0, 5, 0.1, 5.2)}, p=numbers(0.3))
    again = posterior.predict(x=x.clone())
    assert torch.allclose(again["y"].mean, numbers(0, 5, 0, 5), atol=1e-6)
    others = posterior.predict(x=x + 1)
    error = 4 * 5 * math.sqrt(0.3 * 0.7 / others["y"].draws)
    assert torch.allclose(others["y"].mean, torch.full((4,), 1 + 1.5, dtype=F64), atol=error)
    assert len(posterior.predict(x=numbers(0, 0))["y"]) == 2


def hidden_markov(T: int, y: Tensor | None = None) -> None:
    stay = pyro.sample("stay", dist.Beta(number(4), number(2)))
    k = torch.zeros((), dtype=torch.long)
    for t in pyro.markov(range(T)):
        p = torch.stack([stay, 1 - stay])
        k = pyro.sample(f"k{t}", dist.Categorical(torch.stack([p, p.flip(0)])[k]))
        seen = None if y is None or t >= len(y) else y[t]
        pyro.sample(f"y{t}", dist.Normal(3.0 * k.to(F64), number(1)), obs=seen)


def test_a_hidden_markov_model_forecasts_from_its_last_state() -> None:
    posterior = at(hidden_markov, {"T": 3, "y": numbers(0, 3, 3.5)}, stay=numbers(0.9))
    result = posterior.predict(T=4)
    joint = torch.zeros(2, 2, 2, dtype=F64)
    change = numbers(0.9, 0.1)
    for a in (0, 1):
        for b in (0, 1):
            for c in (0, 1):
                prior = change[a] * change[abs(a - b)] * change[abs(b - c)]
                likelihood = (
                    dist.Normal(3 * numbers(a, b, c), 1.0).log_prob(numbers(0, 3, 3.5)).sum().exp()
                )
                joint[a, b, c] = prior * likelihood
    last = float((joint / joint.sum()).sum((0, 1))[1])
    expected = last * 0.9 + (1 - last) * 0.1
    assert float(result["k3"].probabilities[0, 1]) == pytest.approx(
        expected, abs=4 * math.sqrt(expected * (1 - expected) / RUNS)
    )


def groups(g: Tensor, new: int = 0, y: Tensor | None = None) -> None:
    mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
    with pyro.plate("groups", 4):
        a = pyro.sample("a", dist.Normal(mu, number(5)))
    if new:
        with pyro.plate("new groups", new):
            a = torch.cat([a, pyro.sample("b", dist.Normal(mu, number(5)))])
    with pyro.plate("rows", len(g)):
        pyro.sample("y", dist.Normal(a[g], number(0.1)), obs=y)


def test_a_new_group_has_the_mixture_of_its_prior_after_one_draw() -> None:
    a = numbers(-2, -1, 0, 1)
    posterior = at(groups, {"g": torch.arange(4), "y": a}, mu=numbers(-0.9), a=a[None])
    known = posterior.predict(g=torch.arange(4))
    assert known.draws == 1  # exact, because nothing is drawn
    first, second, other = (
        posterior.predict(g=torch.tensor([0, 4]), new=1, seed=s)["y"] for s in (0, 0, 1)
    )
    assert torch.equal(first.mean, second.mean)
    assert not torch.equal(first.mean, other.mean)
    sd = math.sqrt(25 + 0.01)
    assert float(first.mean[1]) == pytest.approx(-0.9, abs=4 * sd / math.sqrt(first.draws))
    assert float(first.std[1]) == pytest.approx(sd, rel=4 / math.sqrt(2 * first.draws))
    assert float(first.std[0]) == pytest.approx(0.1)


def test_drawn_sites_of_another_shape_raise_a_clear_error() -> None:
    def program(G: int, y: Tensor | None = None) -> None:
        with pyro.plate("groups", G):
            a = pyro.sample("a", dist.Normal(number(0), number(5)))
        with pyro.plate("rows", G):
            pyro.sample("y", dist.Normal(a, number(1)), obs=y)

    with pytest.raises(DataError, match="'a'"):
        at(program, {"G": 2, "y": numbers(0, 1)}, a=numbers(0, 1)[None]).predict(G=3)


def test_nested_plates_are_concatenated() -> None:
    def program(rows: Tensor, columns: Tensor, y: Tensor | None = None) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
        with pyro.plate("rows", len(rows), dim=-2), pyro.plate("columns", len(columns), dim=-1):
            pyro.sample("y", dist.Normal(mu + rows[:, None] + columns, number(1)), obs=y)

    rows, columns = numbers(0, 10, 20), numbers(1, 2, 3, 4)
    data = {"rows": rows, "columns": columns, "y": rows[:, None] + columns}
    result = at(program, data, mu=numbers(0.5, -0.5)).predict(rows=rows, columns=columns)
    assert torch.allclose(result.mean, (rows[:, None] + columns).flatten())
    assert torch.allclose(result.variance, torch.full((12,), 1.25, dtype=F64))


def test_a_mixture_as_the_distribution_of_y_predicts() -> None:
    def program(n: int, y: Tensor | None = None) -> None:
        p = pyro.sample("p", dist.Beta(number(2), number(2)))
        with pyro.plate("rows", n):
            which = dist.Categorical(torch.stack([1 - p, p]).expand(n, 2))
            pyro.sample(
                "y",
                dist.MixtureSameFamily(which, dist.Normal(numbers(0, 5).expand(n, 2), number(1))),
                obs=y,
            )

    result = at(program, {"n": 2, "y": numbers(0, 5)}, p=numbers(0.3)).predict(n=2)
    assert torch.allclose(
        result.mean, numbers(1.5, 1.5), atol=4 * 5 * math.sqrt(0.21 / result.draws)
    )


def test_arguments_may_have_the_names_of_those_of_predict() -> None:
    def program(X: Tensor, joint: float = 1.0, seed: float = 0.0, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Normal(joint * (X @ w) + seed, number(0.5)), obs=y)

    X = torch.eye(2, dtype=F64)
    posterior = at(program, {"X": X, "y": numbers(1, 2)}, w=numbers(1, 2)[None])
    assert torch.allclose(posterior.predict(X=X).mean, numbers(1, 2))
    own = {"joint": 2.0, "seed": 10}
    assert torch.allclose(posterior.predict(X, arguments=own).mean, numbers(12, 14))
    assert torch.allclose(posterior.predict(X, arguments=own, seed=3).mean, numbers(12, 14))
    with pytest.raises(NotApplicable, match=r"arguments=\{'joint'"):
        posterior.predict(X, joint=2.0)
    with pytest.raises(NotApplicable, match="own arguments"):
        at(groups, {"g": torch.arange(4)}, mu=numbers(0), a=torch.zeros(1, 4, dtype=F64)).predict(
            X=X
        )
