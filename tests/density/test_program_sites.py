"""Programs whose supports move, or whose latent sites depend on values or on the rows drawn."""

from __future__ import annotations

from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.models import Program

F64 = torch.float64


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


@pytest.mark.parametrize("cut", [2.0, 10.0, 14.0])
@pytest.mark.parametrize("how", [inference.MAP(), inference.Laplace(draws=500)])
def test_a_support_that_moves_far_from_the_origin(how: inference.Inference, cut: float) -> None:
    def program() -> None:
        a = pyro.sample("a", dist.Normal(number(0), number(5)))
        b = pyro.sample("b", dist.Uniform(number(0), a.clamp(min=cut)))
        pyro.sample("ya", dist.Normal(a, number(0.1)), obs=number(15.0))
        pyro.sample("yb", dist.Normal(b, number(0.1)), obs=number(13.5))

    draws = ppgp.fit(program, {}, how, progress=False).draws
    assert float(draws["a"].mean()) == pytest.approx(15, abs=0.05)
    assert float(draws["b"].mean()) == pytest.approx(13.5, abs=0.05)


def branch(above: bool) -> Callable[..., None]:
    def program(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(number(0), number(1)))
        extra = (a.item() > 2) == above
        b = pyro.sample("b", dist.Normal(number(0), number(3))) if extra else number(0)
        pyro.sample("y", dist.Normal(a + b, number(0.5)), obs=y)

    return program


@pytest.mark.parametrize("above", [True, False])
def test_a_site_on_one_branch_is_refused(above: bool) -> None:
    with pytest.raises(NotApplicable, match="same latent sites"):
        Target(Program(branch(above)), {"y": number(4)})


def test_a_branch_far_away_is_refused_where_it_is_met() -> None:
    def program(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(number(0), number(1)))
        b = pyro.sample("b", dist.Normal(number(0), number(3))) if a.item() > 500 else number(0)
        pyro.sample("y", dist.Normal(a + b, number(0.5)), obs=y)

    target = Target(Program(program), {"y": number(4)})
    assert float(target.log_density(number(3)[None])) == pytest.approx(
        float(dist.Normal(0.0, 1.0).log_prob(number(3)) + dist.Normal(3.0, 0.5).log_prob(number(4)))
    )
    with pytest.raises(NotApplicable, match="'b'"):
        target.log_density(number(501)[None])


def test_latent_sites_of_rows_drawn_at_random_are_refused() -> None:
    def program(y: Tensor, outside: bool) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(1)))
        z = None
        if outside:
            with pyro.plate("all", len(y)):
                z = pyro.sample("z", dist.Normal(mu, number(1)))
        with pyro.plate("rows", len(y), subsample_size=4) as i:
            own = pyro.sample("z", dist.Normal(mu, number(1))) if z is None else z[i]
            pyro.sample("y", dist.Normal(own, number(1)), obs=y[i])

    y = torch.arange(20, dtype=F64)
    with pytest.raises(NotApplicable, match="'rows', which takes 4 of 20 rows, got 'z'"):
        ppgp.fit(program, {"y": y, "outside": False}, inference.SVI(steps=5), progress=False)
    assert Target(Program(program), {"y": y, "outside": True}).dim == 21
