"""Graphs of one point and of several come from one recording of the program."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from ppgp import Dataset, kernels, models
from ppgp.density import Target
from ppgp.density import target as targets
from ppgp.density.graph import tracing as graphs
from ppgp.density.graph.tracing import jacobian_of

RUNS = []
F64 = torch.float64


def program(y: Tensor) -> None:
    RUNS.append(1)
    a = pyro.sample("a", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
    s = pyro.sample("s", dist.LogNormal(torch.zeros((), dtype=F64), 1.0))
    pyro.sample("y", dist.Normal(a, s).to_event(1), obs=y)


def target() -> Target:
    return Target(models.Program(program), {"y": torch.arange(3.0, dtype=F64)})


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("few", [False, True])
def test_the_program_runs_no_more_for_a_graph_of_several_points(k: int, few: bool) -> None:
    own = target()
    z = torch.randn(k, own.dim, generator=torch.Generator().manual_seed(0), dtype=F64)
    one_by_one = [own.value_and_grad(point) for point in z]
    before = len(RUNS)
    value, slope = own.value_and_grad_batch(z, few=few)
    assert len(RUNS) == before
    torch.testing.assert_close(value, torch.stack([v for v, _ in one_by_one]))
    torch.testing.assert_close(slope, torch.stack([g for _, g in one_by_one]))


def test_a_graph_of_a_few_calls_is_no_torchscript() -> None:
    few: Any = target().compiled(k=4, few=True)
    many: Any = target().compiled(k=4)
    assert isinstance(few.graph.function, GraphModule)
    assert not isinstance(many.graph.function, GraphModule)


def test_points_taken_in_turn_share_the_graph_of_one_point() -> None:
    X = torch.linspace(-1, 1, 120, dtype=F64)[:, None]
    data = Dataset(X, X[:, 0].sin())
    own = Target(models.GP(kernels.RBF()).prepare(data), data)
    several: Any = own.compiled(k=5)
    assert several.graph is own.compiled()


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_graph_that_is_wrong_at_any_of_three_points_is_not_used(
    wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = target()
    own.compiled()
    trace = targets.traced

    def off(*arguments: Any) -> Any:
        found = trace(*arguments)
        z = own._graphs._three_points()[wrong]

        def graph(points: Tensor) -> tuple[Tensor, Tensor]:
            value, slope = found(points)
            return value + 1.0 * (points == z).all(-1), slope

        return graph

    monkeypatch.setattr(targets, "traced", off)
    several: Any = own.compiled(k=4)
    assert isinstance(several.graph, graphs.Looped)


def test_second_derivatives_at_once_are_those_of_each_row() -> None:
    z = torch.tensor([0.3, -1.2, 2.0], dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad((z.exp() * z.cumsum(0)).sum(), z, create_graph=True)
    torch.testing.assert_close(jacobian_of(slope, z, at_once=True), jacobian_of(slope, z))


class _Unbatched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if float(grads[0].sum()) == 0.0:  # a Python number, which a batch has not
            return torch.zeros_like(x)
        return 2 * x * grads[0]


def test_a_function_that_cannot_be_batched_takes_its_rows_one_by_one() -> None:
    z = torch.tensor([0.3, -1.2], dtype=F64, requires_grad=True)
    slope = _Unbatched.apply(z)
    H = jacobian_of(slope, z, at_once=True)
    torch.testing.assert_close(H, torch.diag(2 * z.detach()))
