"""The density of a hidden Markov model as a program: beside DiscreteHMM and Pyro's enumeration.

Seconds are of the processor, with one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import JitTraceEnum_ELBO, config_enumerate
from side_by_side import paired
from torch import Tensor

from ppgp.density import Target
from ppgp.models import Program

STEPS, STATES = 500, 16
#: of the comparison with Pyro's compiled sum, whose first three calls take minutes at 500 steps
OF_PYRO = 100
SHARE_OF_PYRO = 1 / 3
COMPILE_WITHIN = 5.0
F64 = torch.float64


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def chain(y: Tensor) -> None:
    alpha = torch.ones(STATES, STATES, dtype=F64)
    move = pyro.sample("move", dist.Dirichlet(alpha).to_event(1))
    around = torch.arange(STATES, dtype=F64) / 4
    centre = pyro.sample("centre", dist.Normal(around, 1.0).to_event(1))
    z: Any = 0
    for t in pyro.markov(range(len(y))):
        z = pyro.sample(f"z_{t}", dist.Categorical(move[z]))
        pyro.sample(f"y_{t}", dist.Normal(centre[z], 1.0), obs=y[t])


def compiled(y: Tensor) -> tuple[Target, Callable[[], object]]:
    started = time.process_time()
    target = Target(Program(chain), {"y": y})
    checked = time.process_time()
    graph, z = target.compiled(), target.origin()
    seconds = time.process_time() - checked
    print(f"\n{len(y)} steps: checks {checked - started:.2f} s, compiled in {seconds:.2f} s")
    assert not target.eager
    assert seconds <= COMPILE_WITHIN
    return target, lambda: graph(z)


def by_discrete_hmm(y: Tensor, target: Target) -> Callable[[], object]:
    sites = target.sites(target.origin())
    move, centre = (sites[name].clone().requires_grad_() for name in ("move", "centre"))

    def gradient() -> object:
        law = dist.DiscreteHMM(move[0].log(), move.log(), dist.Normal(centre, 1.0), duration=len(y))
        return torch.autograd.grad(law.log_prob(y), (move, centre))

    return gradient


def by_pyro(y: Tensor, target: Target) -> Callable[[], object]:
    sites = target.sites(target.origin())

    def program(y: Tensor) -> None:
        params = {name: pyro.param(f"{name}_", value) for name, value in sites.items()}
        poutine.condition(config_enumerate(chain), data=params)(y)

    loss = JitTraceEnum_ELBO(max_plate_nesting=0)

    def gradient() -> object:
        return loss.loss_and_grads(program, lambda y: None, y)

    for call in ("first", "second", "third"):
        started = time.process_time()
        gradient()
        print(f"JitTraceEnum_ELBO, {call} call: {time.process_time() - started:.2f} s")
    return gradient


def compared(
    steps: int, ours: Callable[[], object], peer: str, theirs: Callable[[], object], pairs: int
) -> float:
    """Print the medians of both, and return that of the ratios."""
    mine, other, ratio = paired(ours, theirs, pairs)
    print(f"\nChain of {steps} x {STATES}, value and gradient, ms of processor")
    print(f"  ppgp {mine * 1e3:.2f}, {peer} {other * 1e3:.2f}, median ratio {ratio:.3f}")
    return ratio


def test_a_chain_beside_discrete_hmm(benchmark: Any) -> None:
    y = torch.sin(torch.arange(STEPS, dtype=F64))
    target, ours = compiled(y)
    ratio = compared(STEPS, ours, "DiscreteHMM", by_discrete_hmm(y, target), pairs=200)
    benchmark.extra_info["ratio"] = ratio
    benchmark(ours)
    assert ratio <= 1


@pytest.mark.filterwarnings("ignore")  # the tracer of torch warns of Pyro's own branches
def test_a_chain_beside_pyros_enumeration(benchmark: Any) -> None:
    y = torch.sin(torch.arange(OF_PYRO, dtype=F64))
    target, ours = compiled(y)
    with pyro.get_param_store().scope():
        ratio = compared(OF_PYRO, ours, "JitTraceEnum_ELBO", by_pyro(y, target), pairs=9)
    benchmark.extra_info["ratio"] = ratio
    benchmark(ours)
    assert ratio <= SHARE_OF_PYRO
