"""Simulators whose values leave torch: refused by methods of gradients, sampled without."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.errors import NotApplicable
from ppgp.models import Program

F64 = torch.float64
Y = torch.tensor([1.1, 0.9, 1.3, 1.0, 1.2], dtype=F64)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def simulator(simulate: Callable[[Tensor], Tensor]) -> Callable[..., None]:
    def program(y: Tensor) -> None:
        x = pyro.sample("x", dist.Normal(number(0), 1.0))
        pyro.sample("y", dist.Normal(simulate(x), number(0.5)).expand([len(y)]).to_event(1), obs=y)

    return program


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "item": lambda x: number(2 * x.item()),
    "numpy": lambda x: torch.as_tensor(2 * x.numpy()),
    "detach": lambda x: torch.as_tensor(2 * x.detach().numpy()),
    "array": lambda x: torch.as_tensor(2 * np.asarray(x.detach())),
    "float": lambda x: number(2 * float(x)),
    "tolist": lambda x: torch.tensor(x.reshape(1).tolist(), dtype=F64)[0] * 2,
    "later": lambda x: torch.as_tensor(2 * (x.detach() + 0.0).numpy()),
}


@pytest.mark.parametrize("way", WAYS)
def test_methods_of_gradients_name_the_line_and_the_way_out(way: str) -> None:
    program = simulator(WAYS[way])
    wanted = rf"(?s)result of .* in line \d+ of {__name__.split('.')[-1]}\.py .*{way}.*Metropolis"
    for how in (inference.NUTS(), inference.MAP(), inference.SVI(steps=5), inference.SGLD()):
        with pytest.raises(NotApplicable, match=wanted):
            ppgp.fit(program, {"y": Y}, how, progress=False)
    with pytest.raises(NotApplicable, match="Metropolis"):
        ppgp.Target(Program(program), {"y": Y}).value_and_grad(number(0)[None])


@pytest.mark.parametrize("way", ["item", "numpy"])
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_metropolis_hastings_samples_it(way: str) -> None:
    how = inference.MetropolisHastings(draws=400, warmup=200, chains=2, thin=4)
    posterior = ppgp.fit(simulator(WAYS[way]), {"y": Y}, how, progress=False)
    # y_i ~ N(2 x, 0.5^2) and x ~ N(0, 1)
    precision = 1 + len(Y) * 4 / 0.25
    mean, sd = float(Y.sum()) * 2 / 0.25 / precision, precision**-0.5
    x = posterior.draws["x"]
    effective = 100  # draws of this many steps, at least
    assert abs(float(x.mean()) - mean) < 4 * sd / math.sqrt(effective)
    assert float(x.std()) == pytest.approx(sd, rel=4 / math.sqrt(2 * effective))


def only_branches(x: Tensor) -> Tensor:
    return x * 2 if x.item() > -100 else x


def only_shown(x: Tensor, shown: list[float] | None = None) -> Tensor:
    seen: list[Any] = [] if shown is None else shown
    seen.append(x.item())
    return 2 * x


@pytest.mark.parametrize("simulate", [only_branches, only_shown])
@pytest.mark.filterwarnings("ignore::ppgp.errors.NumericalWarning")
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_values_that_the_density_does_not_pass_through_are_no_matter(simulate: Any) -> None:
    posterior = ppgp.fit(simulator(simulate), {"y": Y}, inference.MAP(), progress=False)
    exact = float(Y.sum()) * 2 / 0.25 / (1 + len(Y) * 4 / 0.25)
    assert float(posterior.theta["x"]) == pytest.approx(exact, abs=1e-4)
