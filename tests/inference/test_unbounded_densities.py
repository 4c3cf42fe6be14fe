"""MAP says where a density has no maximum, at the edge of the support of a site."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.errors import ConvergenceWarning

Program = Callable[[Tensor], None]


def shares(concentration: float) -> Program:
    def program(y: Tensor) -> None:
        p = pyro.sample("p", dist.Dirichlet(y.new_full((3,), concentration)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Categorical(p), obs=y.long())

    return program


def rates(of_one: float, of_zero: float) -> Program:
    def program(y: Tensor) -> None:
        p = pyro.sample("p", dist.Beta(y.new_tensor(of_one), y.new_tensor(of_zero)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Bernoulli(p), obs=y)

    return program


def counts(concentration: float) -> Program:
    def program(y: Tensor) -> None:
        p = pyro.sample("p", dist.Gamma(y.new_tensor(concentration), y.new_tensor(1.0)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Poisson(p), obs=y)

    return program


def groups(y: Tensor) -> None:
    q = pyro.sample("q", dist.Normal(y.new_zeros(()), 1.0))
    with pyro.plate("rows", len(y)):
        p = pyro.sample("p", dist.Dirichlet(y.new_full((2,), 0.5)))
        pyro.sample("y", dist.Normal(q + 0.01 * p[..., 0], 1.0), obs=y)


UNBOUNDED = {
    "shares": (shares(0.9), [0, 0, 1]),
    "rates at 0": (rates(0.5, 2.0), [0, 0, 0]),
    "rates at 1": (rates(2.0, 0.5), [1, 1, 1]),
    "counts": (counts(0.5), [0, 0]),
    "groups": (groups, [0.1, -0.2]),
}
BOUNDED = {
    "shares at the edge": (shares(1.0), [0, 0, 1]),
    "shares inside": (shares(0.9), [0, 1, 2]),
    "rates at the edge": (rates(1.0, 2.0), [0, 0, 0]),
    "counts inside": (counts(0.5), [0, 2]),
    "counts at the edge": (counts(1.0), [0, 0]),
}


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", UNBOUNDED)
def test_map_names_the_site_at_whose_edge_the_density_is_unbounded(
    name: str, dtype: torch.dtype
) -> None:
    program, y = UNBOUNDED[name]
    data = {"y": torch.tensor(y, dtype=dtype)}
    said = (
        r"no maximum: it grows without bound at the edge of the support of 'p', where a "
        r"concentration is below 1, .*; fit by Laplace\(\) or NUTS\(\), or give concentrations"
    )
    with pytest.warns(ConvergenceWarning, match=said):
        posterior = ppgp.fit(program, data, inference.MAP(starts=3), seed=0, progress=False)
    assert not any("proper priors" in note for note in posterior.warnings)
    laplace = ppgp.fit(program, data, inference.Laplace(draws=20), seed=0, progress=False)
    assert not any("no maximum" in note for note in laplace.warnings)  # with the Jacobian


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BOUNDED)
def test_a_maximum_at_the_edge_or_inside_is_one(name: str, dtype: torch.dtype) -> None:
    program, y = BOUNDED[name]
    data = {"y": torch.tensor(y, dtype=dtype)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        posterior = ppgp.fit(program, data, inference.MAP(starts=3), seed=0, progress=False)
    assert not any("no maximum" in note for note in posterior.warnings)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_transitions_of_a_hidden_chain_with_low_concentrations() -> None:
    def chain(y: Tensor) -> None:
        concentrations = 0.9 * torch.eye(2, dtype=y.dtype) + 0.1
        moves = pyro.sample("moves", dist.Dirichlet(concentrations).to_event(1))
        mean = pyro.sample("mean", dist.Normal(y.new_tensor([-1.0, 1.0]), 1.0).to_event(1))
        x: int | Tensor = 0
        for t in pyro.markov(range(len(y))):
            x = pyro.sample(f"x_{t}", dist.Categorical(moves[x]), infer={"enumerate": "parallel"})
            pyro.sample(f"y_{t}", dist.Normal(mean[x], 0.5), obs=y[t])

    y = torch.tensor([-1.0, -1.1, 0.9, 1.2], dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="without bound at the edge .* of 'moves'"):
        posterior = ppgp.fit(chain, {"y": y}, inference.MAP(), seed=0, progress=False)
    assert not any("proper priors" in note for note in posterior.warnings)
