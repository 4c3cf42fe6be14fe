"""The gradient of densities with few numbers, as machine code and as a graph of torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from side_by_side import alternate, show
from torch import Tensor

import ppgp
from ppgp import kernels, models
from ppgp.models import Program
from ppgp.runtime.threads import blas_on_one_thread

pytest.importorskip("llvmlite")
F64 = torch.float64
#: of the time of the graph
SHARES = {"network": 1 / 3, "slopes": 1 / 3, "items": 1 / 2}
COVARIANCES = {"GP with ARD": 0.7, "Kriging": 0.6, "SGPR": 0.6}
COMPILE_WITHIN = 3.0  # seconds


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def network(X: Tensor, y: Tensor) -> None:
    """76 weights: 3 inputs, 15 units with tanh, 1 output."""
    one = X.new_ones(())
    inner = pyro.sample("inner", dist.Normal(torch.zeros(3, 15, dtype=F64), one).to_event(2))
    bias = pyro.sample("bias", dist.Normal(torch.zeros(15, dtype=F64), one).to_event(1))
    outer = pyro.sample("outer", dist.Normal(torch.zeros(15, dtype=F64), one).to_event(1))
    noise = pyro.sample("noise", dist.HalfNormal(one))
    with pyro.plate("rows", len(X)):
        pyro.sample("y", dist.Normal(torch.tanh(X @ inner + bias) @ outer, noise), obs=y)


def slopes(X: Tensor, y: Tensor, group: Tensor) -> None:
    """Logistic regression whose intercepts and slopes vary between 200 groups."""
    one = X.new_ones(())
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2, dtype=F64), one).to_event(1))
    sd = pyro.sample("sd", dist.HalfNormal(torch.ones(2, dtype=F64)).to_event(1))
    z = pyro.sample("z", dist.Normal(torch.zeros(200, 2, dtype=F64), one).to_event(2))
    effect = mean + sd * z
    with pyro.plate("rows", len(X)):
        f = effect[group, 0] + effect[group, 1] * X
        pyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def items(y: Tensor) -> None:
    """Item response: 300 persons and 30 items."""
    one = y.new_ones(())
    ability = pyro.sample("ability", dist.Normal(torch.zeros(300, dtype=F64), one).to_event(1))
    spread = pyro.sample("spread", dist.HalfNormal(one))
    easy = pyro.sample("easy", dist.Normal(torch.zeros(30, dtype=F64), one).to_event(1))
    with pyro.plate("items", 30, dim=-1), pyro.plate("persons", 300, dim=-2):
        f = ability[:, None] + spread * easy
        pyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def _programs() -> Mapping[str, tuple[Callable[..., Any], dict[str, Tensor]]]:
    X = normal(0, 300, 3)
    x = normal(1, 5000)
    group = torch.randint(0, 200, (5000,), generator=torch.Generator().manual_seed(2))
    return {
        "network": (network, {"X": X, "y": X[:, 0].sin() + 0.2 * normal(3, 300)}),
        "slopes": (slopes, {"X": x, "y": (x + normal(4, 5000) > 0).to(F64), "group": group}),
        "items": (items, {"y": (normal(5, 300, 30) > 0).to(F64)}),
    }


def _covariances() -> Mapping[str, tuple[models.Model, int]]:
    """Models of 100 rows, and the columns of X."""
    return {
        "GP with ARD": (models.GP(kernels.ARD(kernels.RBF())), 4),
        "Kriging": (models.Kriging(), 2),
        "SGPR": (models.SGPR(kernels.RBF(), inducing=20), 4),
    }


def compared(benchmark: Any, name: str, target: ppgp.Target, share: float) -> None:
    """Compare the gradient in machine code with that on the graph of torch."""
    z = target.origin().numpy() + 0.1
    graph = target.callback()
    started = time.process_time()
    code = target.callback(often=True)
    seconds = time.process_time() - started
    assert graph(z)[0] == pytest.approx(code(z)[0], rel=1e-10)
    times = alternate({"machine code": lambda: code(z), "graph of torch": lambda: graph(z)}, 9, 50)
    print(f"\n{name}: compiled in {seconds:.2f} s of a core")
    ratio = show(f"gradient of {name}", times, "us", 1e6, ours="machine code")
    assert seconds <= COMPILE_WITHIN
    assert ratio <= share
    benchmark.pedantic(lambda: code(z), rounds=5, iterations=50)


@pytest.mark.parametrize("name", SHARES)
def test_gradients_in_machine_code(benchmark: Any, name: str) -> None:
    program, arguments = _programs()[name]
    compared(benchmark, name, ppgp.Target(Program(program), arguments), SHARES[name])


@pytest.mark.parametrize("name", COVARIANCES)
def test_gradients_of_covariances_in_machine_code(benchmark: Any, name: str) -> None:
    model, columns = _covariances()[name]
    X = normal(6, 100, columns)
    data = ppgp.Dataset(X, X[:, 0].sin() + 0.3 * X[:, 1] ** 2 + 0.1 * normal(7, 100))
    target = ppgp.Target(model.prepare(data), data)
    with blas_on_one_thread():  # as chains have it
        compared(benchmark, name, target, COVARIANCES[name])
