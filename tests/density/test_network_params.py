"""Params of a network: the program computes with the values that a fit gives them."""

from __future__ import annotations

from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroParam
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.inference import MAP
from ppgp.models import Program

F64 = torch.float64
X = torch.linspace(-1.0, 1.0, 20, dtype=F64)[:, None]
Y = 0.5 - 2.0 * X[:, 0] + torch.sin(9.0 * X[:, 0])


def registered() -> Callable[..., None]:
    net = torch.nn.Linear(1, 1).double()

    def program(X: Tensor, y: Tensor | None = None) -> None:
        pyro.module("net", net)
        sd = pyro.sample("sd", dist.HalfNormal(torch.tensor(2.0, dtype=F64)))
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Normal(net(X)[:, 0], sd), obs=y)

    return program


class OfPyro(PyroModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[torch.nn.Linear](1, 1).double()

    def forward(self, X: Tensor, y: Tensor | None = None) -> None:
        sd = pyro.sample("sd", dist.HalfNormal(torch.tensor(2.0, dtype=F64)))
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Normal(self.linear(X)[:, 0], sd), obs=y)


MAKE = [registered, OfPyro]


def least_squares() -> Tensor:
    """Return the fitted values, which are those of the mode, whatever sd."""
    table = torch.cat([X, torch.ones_like(X)], 1)
    return table @ torch.linalg.lstsq(table, Y[:, None]).solution[:, 0]


@pytest.mark.parametrize("make", MAKE)
def test_map_fits_the_weights_and_predict_uses_them(
    make: Callable[[], Callable[..., None]],
) -> None:
    torch.manual_seed(0)
    posterior = ppgp.fit(make(), {"X": X, "y": Y}, MAP(), progress=False)
    torch.testing.assert_close(posterior.predict(X=X).mean, least_squares(), rtol=0, atol=1e-5)
    posterior = ppgp.Posterior(  # as a loaded file, whose network has weights of its own
        Program(make()), {"X": X, "y": Y}, posterior.draws, posterior.how, params=posterior.params
    )
    torch.testing.assert_close(posterior.predict(X=X).mean, least_squares(), rtol=0, atol=1e-5)


def test_a_sampler_holds_a_network_in_a_graph() -> None:
    target = Target(Program(registered()), {"X": X, "y": Y})
    weight, bias = target.params.values()
    z = torch.tensor([0.3], dtype=F64)
    value, _ = target.value_and_grad(z)
    sd = z.exp()
    prior = dist.HalfNormal(torch.tensor(2.0, dtype=F64)).log_prob(sd) + z
    expected = dist.Normal(X[:, 0] * weight.squeeze() + bias, sd).log_prob(Y).sum() + prior
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    assert not target.eager


def test_a_network_that_ran_before_its_params_is_refused() -> None:
    net = torch.nn.Linear(1, 1).double()

    def program(X: Tensor, y: Tensor) -> None:
        mean = net(X)[:, 0]
        pyro.module("net", net)
        sd = pyro.sample("sd", dist.HalfNormal(torch.tensor(2.0, dtype=F64)))
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Normal(mean, sd), obs=y)

    with pytest.raises(NotApplicable, match=r"after pyro\.module"):
        ppgp.fit(program, {"X": X, "y": Y}, MAP(), progress=False)


class Spread(PyroModule):
    def __init__(self) -> None:
        super().__init__()
        self.variance = PyroParam(torch.ones((), dtype=F64), constraint=dist.constraints.positive)

    def forward(self, y: Tensor) -> None:
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(torch.zeros((), dtype=F64), self.variance.sqrt()), obs=y)


def test_the_constraint_of_a_param_of_a_module() -> None:
    """On the real line, the search would come to negative variances."""
    program = Program(Spread())
    target = Target(program, {"y": Y}, optimise_params=True)
    z = torch.tensor([-3.0], dtype=F64)
    torch.testing.assert_close(target.constrain(z)["variance"], z.exp()[0])
    posterior = ppgp.fit(Spread(), {"y": Y}, MAP(), progress=False)
    torch.testing.assert_close(posterior.params["variance"], Y.square().mean(), rtol=1e-5, atol=0)
