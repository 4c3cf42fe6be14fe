"""Information criteria count the free parameters, not the coordinates of a transform."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.distributions import constraints
from torch import Tensor

from ppgp.density import Target
from ppgp.models import Program

#: constraint, a value, and the dimension of the set
PARAMS = {
    "simplex": (constraints.simplex, torch.full((2, 4), 0.25), 6),
    "lower triangle": (constraints.lower_cholesky, torch.eye(3), 6),
    "covariance": (constraints.positive_definite, torch.eye(3), 6),
    "positive": (constraints.positive, torch.ones(5), 5),
    "softplus triangle": (constraints.softplus_lower_cholesky, torch.eye(3), 6),
    "unit triangle": (constraints.unit_lower_cholesky, torch.eye(3), 3),
    "sphere": (constraints.sphere, torch.tensor([1.0, 0.0, 0.0, 0.0]), 3),
    "real": (constraints.real, torch.ones(2, 3), 6),
    "rows of simplices": (constraints.independent(constraints.simplex, 1), torch.ones(2, 2) / 2, 2),
    "correlation": (constraints.corr_cholesky, torch.eye(3), 3),
}


@pytest.mark.parametrize("name", PARAMS)
def test_of_a_param(name: str) -> None:
    constraint, start, free = PARAMS[name]

    def program(y: Tensor) -> None:
        value = pyro.param("value", start.double(), constraint=constraint)
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(value.sum(), 1.0), obs=y)

    y = torch.zeros(4, dtype=torch.float64)
    target = Target(Program(program), {"y": y}, optimise_params=True)
    assert target.parameters == free
