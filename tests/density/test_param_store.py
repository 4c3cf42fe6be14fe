"""Params in Pyro's store: a fit begins there, samplers hold them, and the store stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.models import Program

F64 = torch.float64
X = torch.linspace(0, 1, 30, dtype=F64)
Y = 1 + 4 * X


def program(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.param("w", torch.zeros((), dtype=F64))
    b = pyro.sample("b", dist.Normal(torch.zeros((), dtype=F64), 5.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b + w * x, 0.5), obs=y)


@pytest.fixture
def stored() -> Iterator[None]:
    with pyro.get_param_store().scope():
        pyro.param("w", torch.tensor(4.0, dtype=F64))
        yield
        assert pyro.param("w").item() == 4.0


ENGINES = [
    inference.NUTS(draws=50, warmup=50, chains=1),
    inference.NUTS(draws=50, warmup=50, chains=1, engine="pyro"),
]


@pytest.mark.usefixtures("stored")
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("how", ENGINES, ids=["nutpie", "pyro"])
def test_a_sampler_holds_a_param_where_the_store_has_it(how: Any) -> None:
    posterior = ppgp.fit(program, {"x": X, "y": Y}, how, progress=False)
    assert float(posterior.params["w"]) == 4.0
    exact = (Y - 4 * X).sum() / 0.25 / (30 / 0.25 + 1 / 25)
    assert float(posterior.draws["b"].mean()) == pytest.approx(float(exact), abs=0.12)
    torch.testing.assert_close(posterior.predict(x=X).mean, Y, rtol=0, atol=0.12)


@pytest.mark.usefixtures("stored")
def test_map_moves_a_param_on_from_the_store() -> None:
    target = Target(Program(program), {"x": X, "y": Y}, optimise_params=True)
    assert float(target.constrain(target.origin())["w"]) == 4.0
    posterior = ppgp.fit(program, {"x": X, "y": Y + X}, inference.MAP(), progress=False)
    assert float(posterior.params["w"]) == pytest.approx(5.0, abs=1e-2)
