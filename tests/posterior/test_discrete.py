"""Discrete sites given the data: beside all assignments, Pyro's infer_discrete, and Viterbi."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import config_enumerate, infer_discrete
from torch import Tensor

import ppgp
from ppgp import inference, models
from ppgp.density.assignments import drawn, most_probable, probabilities
from ppgp.density.handlers import quietly
from ppgp.errors import NotApplicable, UnknownName
from ppgp.models import Program
from tests.enumerated_programs import (
    CASES,
    F64,
    Case,
    assignments,
    hidden_markov,
    mixture,
    sequences,
    values_of,
)

PLAIN = [case for case in CASES if case.plain]
DRAWS = 4000


def shares(case: Case, values: dict[str, Tensor]) -> list[tuple[dict[str, Tensor], Tensor]]:
    found = assignments(case, values)
    weights = torch.stack([value for _, value in found]).softmax(0)
    return [(discrete, share) for (discrete, _), share in zip(found, weights, strict=True)]


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_probabilities_are_those_of_all_assignments(case: Case) -> None:
    values = values_of(case, 0)
    with quietly(), torch.no_grad():
        found = Program(case.program).enumerated(values, case.arguments)
        ours = probabilities(found)
    every = shares(case, values)
    for name, share in ours.items():
        support = found.support[name]
        expected = sum(
            weight * (discrete[name][..., None] == support).to(F64) for discrete, weight in every
        )
        assert share.shape == expected.shape
        assert torch.allclose(share, expected, atol=1e-10)


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_the_most_probable_assignment_is_that_of_the_highest_density(case: Case) -> None:
    values = values_of(case, 1)
    with quietly(), torch.no_grad():
        found = Program(case.program).enumerated(values, case.arguments)
        places = most_probable(found)
    best, _ = max(assignments(case, values), key=lambda pair: float(pair[1]))
    for name, place in places.items():
        assert torch.equal(found.support[name][place], best[name])


@pytest.mark.parametrize("program", [mixture, hidden_markov, sequences], ids=lambda f: f.__name__)
def test_draws_have_the_joint_law(program: Any) -> None:
    case = next(c for c in CASES if c.program is program)
    values = values_of(case, 0)
    theta = {name: value.expand(DRAWS, *value.shape) for name, value in values.items()}
    model = Program(case.program)
    with quietly(), torch.no_grad():
        torch.manual_seed(0)
        found = model.enumerated(values, case.arguments)
        draws = model.of_discrete(theta, case.arguments, drawn)
    for discrete, share in shares(case, values):
        same = torch.ones(DRAWS, dtype=torch.bool)
        for name, value in discrete.items():
            same &= (found.support[name][draws[name]] == value).reshape(DRAWS, -1).all(1)
        count, mean = int(same.sum()), DRAWS * float(share)
        assert abs(count - mean) <= 5 * math.sqrt(mean + 1)


@pytest.mark.parametrize("program", [mixture, hidden_markov, sequences], ids=lambda f: f.__name__)
def test_the_most_probable_values_are_pyros_at_temperature_0(program: Any) -> None:
    case = next(c for c in CASES if c.program is program)
    posterior = ppgp.fit(case.program, case.arguments, inference.MAP(starts=1), progress=False)
    values = {name: value[0, 0] for name, value in posterior.draws.items()}
    conditioned = poutine.condition(config_enumerate(case.program), data=values)
    inferred: Any = infer_discrete(conditioned, first_available_dim=-3, temperature=0)
    trace = poutine.trace(inferred).get_trace(**case.arguments)
    for name in trace.stochastic_nodes:
        if name.startswith("z"):
            ours = posterior.discrete(name).most_probable()[0, 0]
            assert torch.equal(ours.long(), trace.nodes[name]["value"].long())


def test_a_chain_is_forward_backward_and_viterbi() -> None:
    y = torch.tensor([0.3, -0.8, 1.9, 2.2, 0.1, 1.4, 0.9, -2.0, 1.1, 2.8, 3.0, 0.2], dtype=F64)
    how = inference.Laplace(draws=3, starts=1)
    posterior = ppgp.fit(hidden_markov, {"y": y}, how, progress=False)
    z = posterior.discrete("z")
    assert z.sites == tuple(f"z_{t}" for t in range(12))
    assert z.probabilities.shape == (1, 3, 12, 3)
    assert torch.equal(posterior.discrete("z_4").probabilities, z.probabilities[:, :, 4])
    for i in range(3):
        move, centre = (posterior.draws[name][0, i] for name in ("move", "centre"))
        e = dist.Normal(centre, 0.7).log_prob(y[:, None]).exp()
        forward, backward = [move[0] * e[0]], [torch.ones(3, dtype=F64)]
        for t in range(1, 12):
            forward.append(forward[-1] @ move * e[t])
            backward.append(move @ (backward[-1] * e[-t]))
        both = torch.stack(forward) * torch.stack(backward[::-1])
        assert torch.allclose(z.probabilities[0, i], both / both.sum(-1, keepdim=True))
        best, back = (move[0] * e[0]).log(), []
        for t in range(1, 12):
            step = best[:, None] + move.log()
            back.append(step.argmax(0))
            best = step.amax(0) + e[t].log()
        path = [best.argmax()]
        for at in back[::-1]:
            path.append(at[path[-1]])
        assert z.most_probable()[0, i].tolist() == [int(s) for s in path[::-1]]
    assert torch.equal(z.sample(seed=1), z.sample(seed=1))
    joint = torch.stack([posterior.discrete(name).sample(seed=1) for name in z.sites], 2)
    assert torch.equal(joint, z.sample(seed=1))


def test_names_that_are_no_discrete_sites() -> None:
    y = torch.tensor([0.3, -0.8, 1.9], dtype=F64)
    posterior = ppgp.fit(mixture, {"y": y}, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="'centre', which was drawn"):
        posterior.discrete("centre")
    with pytest.raises(UnknownName, match="discrete site"):
        posterior.discrete("label")

    def smooth(y: Tensor) -> None:
        pyro.sample("y", dist.Normal(pyro.sample("m", dist.Normal(0.0, 1.0)), 1.0), obs=y)

    plain = ppgp.fit(smooth, {"y": torch.tensor(1.0)}, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="a program with discrete latent sites"):
        plain.discrete("m")
    data = ppgp.Dataset(y[:, None], y)
    table = ppgp.fit(models.LinearRegression(), data, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="got LinearRegression"):
        table.discrete("z")


def test_sites_of_several_values() -> None:
    """One-hot values, and a binomial count, which has the values 0, 1, 2, 3."""

    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 0.01))
        with pyro.plate("rows", len(y)):
            k = pyro.sample("k", dist.Binomial(3, torch.tensor(0.4, dtype=F64)))
            which = pyro.sample("w", dist.OneHotCategorical(torch.ones(2, dtype=F64) / 2))
            pyro.sample("y", dist.Normal(m + k + 9 * which[..., 0], 0.5), obs=y)

    y = torch.tensor([0.1, 2.0, 12.1], dtype=F64)
    posterior = ppgp.fit(program, {"y": y}, inference.MAP(), progress=False)
    k, w = posterior.discrete("k"), posterior.discrete("w")
    assert k.values.tolist() == [0, 1, 2, 3]
    assert k.probabilities.shape == (1, 1, 3, 4)
    assert k.most_probable().tolist() == [[[0, 2, 3]]]
    assert w.values.shape == (2, 2)
    assert w.most_probable()[0, 0].tolist() == [[0, 1], [0, 1], [1, 0]]
