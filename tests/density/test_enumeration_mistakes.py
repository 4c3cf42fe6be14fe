"""Programs that are wrong for all values of a discrete site at once are refused."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.models import Program

F64 = torch.float64
ZERO = torch.zeros((), dtype=F64)
Y = torch.tensor([0.3, -1.0, 2.0, 0.7], dtype=F64)
COIN = dist.Bernoulli(torch.tensor(0.3, dtype=F64))
UNIT = dist.Normal(ZERO, 1.0)


def pair() -> Tensor:
    return pyro.sample("m", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))


def change_point(y: Tensor, axis: bool = False) -> None:
    m = pair()
    tau = pyro.sample("tau", dist.Categorical(torch.ones(4, dtype=F64) / 4))
    tau = tau[..., None] if axis else tau
    loc = torch.where(torch.arange(4) < tau, m[0], m[1])
    pyro.sample("y", dist.Normal(loc, 1.0).to_event(1), obs=y)


def sum_over_a_plate(y: Tensor) -> None:
    m = pyro.sample("m", UNIT)
    with pyro.plate("rows", len(y)):
        k = pyro.sample("k", COIN)
    pyro.sample("total", dist.Normal(m + k.sum(), 1.0), obs=y[0])


def python_if(y: Tensor) -> None:
    m = pyro.sample("m", UNIT)
    k = pyro.sample("k", dist.Bernoulli(torch.tensor(1e-6, dtype=F64)))
    loc = m + 3 if k.flatten()[0] > 0 else m
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(loc, 1.0), obs=y)


def weighted_sum(y: Tensor) -> None:
    m = pyro.sample("m", UNIT)
    with pyro.plate("rows", len(y)):
        k = pyro.sample("k", COIN)
    pyro.sample("total", dist.Normal(m + (k * y).sum(-1), 1.0), obs=y[0])


def matrix_product(y: Tensor) -> None:
    with pyro.plate("columns", 3):
        b = pyro.sample("b", UNIT)
        k = pyro.sample("k", COIN)
    X = torch.eye(4, 3, dtype=F64)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(X @ (b * k), 1.0), obs=y)


MISTAKES = [change_point, sum_over_a_plate, python_if, weighted_sum, matrix_product]


@pytest.mark.parametrize("program", MISTAKES, ids=lambda f: f.__name__)
def test_a_mistake_is_one_sentence(program: Any) -> None:
    with pytest.raises(NotApplicable, match="sum") as caught:
        Target(Program(program), {"y": Y})
    assert "\n" not in str(caught.value)


def test_the_change_point_with_its_own_axis_is_the_sum_over_tau() -> None:
    target = Target(Program(change_point), {"y": Y, "axis": True})
    m = torch.tensor([0.4, -0.2], dtype=F64)
    terms = []
    for tau in range(4):
        loc = torch.where(torch.arange(4) < tau, m[0], m[1])
        terms.append(dist.Normal(loc, 1.0).log_prob(Y).sum() - torch.log(torch.tensor(4.0)))
    expected = torch.logsumexp(torch.stack(terms), 0) + UNIT.log_prob(m).sum()
    assert float(target.log_density(m)) == pytest.approx(float(expected), rel=1e-7)


@pytest.mark.parametrize("plate", [True, False])
def test_a_support_that_depends_on_a_summed_site_is_refused(plate: bool) -> None:
    def program(y: Tensor) -> None:
        with pyro.plate("rows", len(y) if plate else 1):
            k = pyro.sample("k", COIN)
            x = pyro.sample("x", dist.Uniform(torch.zeros_like(k), 1 + k))
            pyro.sample("y", dist.Normal(x, 1.0), obs=y if plate else y[:1])

    with pytest.raises(NotApplicable, match="that of 'x'"):
        Target(Program(program), {"y": Y})


def test_a_hidden_markov_model_as_one_distribution_is_a_density() -> None:
    def program(y: Tensor) -> None:
        m = pair()
        start, move = torch.full((2,), 0.5, dtype=F64).log(), torch.eye(2, dtype=F64) + 0.5
        law = dist.DiscreteHMM(start, (move / 2).log(), dist.Normal(m, 1.0), duration=4)
        pyro.sample("y", law, obs=y)

    assert bool(torch.isfinite(Target(Program(program), {"y": Y}).log_density(Y[:2])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_that_are_improbable_beyond_exp_are_no_mistake(dtype: torch.dtype) -> None:
    y = torch.tensor([-0.5, 60.0, 61.0], dtype=dtype)

    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=dtype), 1.0))
        with pyro.plate("rows", len(y)):
            k = pyro.sample("k", dist.Bernoulli(torch.tensor(0.5, dtype=dtype)))
            pyro.sample("y", dist.Normal(m + 60 * k, 1.0), obs=y)

    found = Target(Program(program), {"y": y}).log_density(torch.zeros(1, dtype=dtype))
    half = torch.tensor(0.5, dtype=F64).log()
    near = UNIT.log_prob(torch.tensor([-0.5, 0.0, 1.0], dtype=F64)).sum() + 3 * half
    assert float(found) == pytest.approx(float(near + UNIT.log_prob(ZERO)), rel=1e-6)
