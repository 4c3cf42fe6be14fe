"""Discrete sites whose extra axes a program mistakes for its own are refused in one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from ppgp.errors import NotApplicable
from ppgp.models import Program
from ppgp.target import Target

F64 = torch.float64
Y = torch.tensor([0.2, -0.4, 2.8, 3.1], dtype=F64)
HALF = torch.tensor(0.5, dtype=F64)
SIDE_BY_SIDE = "the same density at each value"
SUMMED = "discrete sites that can be summed out"


def mean() -> Tensor:
    return pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 1.0))


def change_point(move: bool) -> Callable[[], None]:
    def program() -> None:
        m = mean()
        tau = pyro.sample("tau", dist.Categorical(torch.full((4,), 0.25, dtype=F64)))
        tau = tau.unsqueeze(-1) if move else tau
        loc = torch.where(torch.arange(4) < tau, m, m + 3)
        pyro.sample("y", dist.Normal(loc, 1.0).to_event(1), obs=Y)

    return program


def total() -> None:
    m = mean()
    with pyro.plate("rows", 4):
        k = pyro.sample("k", dist.Bernoulli(0.6 * HALF))
    pyro.sample("y", dist.Normal(m + k.sum(), 1.0), obs=Y[2])


def branch() -> None:
    m = mean()
    k = pyro.sample("k", dist.Bernoulli(HALF))
    loc = m + 3 if k.flatten()[0] > 0 else m
    with pyro.plate("rows", 4):
        pyro.sample("y", dist.Normal(loc, 1.0), obs=Y)


def masked() -> None:
    m = mean()
    with pyro.plate("rows", 4):
        k = pyro.sample("k", dist.Bernoulli(HALF).mask(Y > 0))
        pyro.sample("y", dist.Normal(m + k, 1.0), obs=Y)


def sampled() -> None:
    m = mean()
    k = pyro.sample("k", dist.Bernoulli(HALF), infer={"enumerate": "parallel", "num_samples": 4})
    with pyro.plate("rows", 4):
        pyro.sample("y", dist.Normal(m + k, 1.0), obs=Y)


def product() -> None:
    table = torch.ones(4, 3, dtype=F64)
    with pyro.plate("columns", 3):
        b = pyro.sample("b", dist.Normal(torch.zeros((), dtype=F64), 1.0))
        k = pyro.sample("k", dist.Bernoulli(HALF))
    with pyro.plate("rows", 4):
        pyro.sample("y", dist.Normal(table @ (b * k), 1.0), obs=Y)


def crossed() -> None:
    m = mean()
    first, second = pyro.plate("first", 4, dim=-2), pyro.plate("second", 4, dim=-1)
    with first:
        a = pyro.sample("a", dist.Bernoulli(HALF))
    with second:
        b = pyro.sample("b", dist.Bernoulli(HALF))
    with first, second:
        pyro.sample("y", dist.Normal(m + a + b, 1.0), obs=Y.expand(4, 4))


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (change_point(False), SIDE_BY_SIDE),
        (total, SIDE_BY_SIDE),
        (branch, SIDE_BY_SIDE),
        (masked, "without scale, subsample or mask"),
        (sampled, "got samples of 'k'"),
        (product, SUMMED),
        (crossed, SUMMED),
    ],
    ids=["change point", "sum", "if", "mask", "num_samples", "product", "crossed plates"],
)
def test_a_mistake_with_the_axes_of_a_discrete_site(
    program: Callable[[], None], sentence: str
) -> None:
    with pytest.raises(NotApplicable, match=sentence) as caught:
        Target(Program(program), {})
    assert "\n" not in str(caught.value)


def test_the_density_of_a_right_change_point() -> None:
    target = Target(Program(change_point(True)), {})
    z = torch.tensor([0.3], dtype=F64)
    each = [
        dist.Normal(torch.where(torch.arange(4) < tau, z, z + 3), 1.0).log_prob(Y).sum()
        for tau in range(4)
    ]
    expected = torch.stack(each).logsumexp(0) - torch.tensor(4.0).log()
    expected = expected + dist.Normal(0.0, 1.0).log_prob(z).sum()
    torch.testing.assert_close(target.log_density(z), expected, check_dtype=False)


def test_a_chain_whose_states_take_turns_in_an_axis() -> None:
    change = torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=F64)
    y = Y.expand(3, 4)

    def program() -> None:
        m = mean()
        with pyro.plate("series", 3):
            k = torch.zeros(3, dtype=torch.long)
            for t in pyro.markov(range(4)):
                k = pyro.sample(f"k{t}", dist.Categorical(change[k]))
                pyro.sample(f"y{t}", dist.Normal(m + 3.0 * k, 1.0), obs=y[:, t])

    z = torch.tensor([0.3], dtype=F64)
    paths = []
    for path in itertools.product((0, 1), repeat=4):
        states = torch.tensor(path)
        moves = change[torch.cat([torch.zeros(1, dtype=torch.long), states[:-1]]), states]
        paths.append(moves.log().sum() + dist.Normal(z + 3.0 * states, 1.0).log_prob(Y).sum())
    expected = 3 * torch.stack(paths).logsumexp(0) + dist.Normal(0.0, 1.0).log_prob(z).sum()
    torch.testing.assert_close(Target(Program(program), {}).log_density(z), expected)
