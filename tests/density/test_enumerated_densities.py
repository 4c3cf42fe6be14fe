"""Densities of programs with discrete sites equal Pyro's and the sum over all assignments."""

from __future__ import annotations

import pytest
import torch

from ppgp.density import Target
from ppgp.models import Program
from tests.enumerated_programs import CASES, Case, by_hand, by_pyro, values_of


@pytest.mark.parametrize("case", CASES, ids=str)
def test_density_and_gradient_are_those_of_pyro(case: Case) -> None:
    target = Target(Program(case.program), case.arguments)
    assert not target.eager
    for seed in range(2):
        values = values_of(case, seed)
        z = target.unconstrain(values)
        free = {name: value.clone().requires_grad_() for name, value in values.items()}
        theirs = by_pyro(case, free)
        found = target.log_density(z, jacobian=False)
        assert float(found.detach()) == pytest.approx(float(theirs.detach()), rel=1e-10, abs=1e-10)
        z = z.requires_grad_()
        slope = torch.autograd.grad(target.log_density(z, jacobian=False), z)[0]
        constrained = target.sites(z)
        expected = torch.autograd.grad(
            list(constrained.values()),
            z,
            list(torch.autograd.grad(theirs, [free[name] for name in constrained])),
        )[0]
        assert torch.allclose(slope, expected, rtol=1e-8, atol=1e-8)
        value, gradient = target.value_and_grad(z.detach(), jacobian=False)
        assert torch.allclose(value, found.detach(), rtol=1e-10)
        assert torch.allclose(gradient, slope, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", [c for c in CASES if c.plain], ids=str)
def test_density_is_the_sum_over_all_assignments(case: Case) -> None:
    values = values_of(case, 0)
    target = Target(Program(case.program), case.arguments)
    found = target.log_density(target.unconstrain(values), jacobian=False)
    assert float(found) == pytest.approx(float(by_hand(case, values)), rel=1e-10, abs=1e-10)
