"""A recorded graph does what the function does, at other arguments too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ppgp.density.graph.recorder import Layout, recorded

F64 = torch.float64
CAPTURED = torch.tensor([2.0, 0.5, 1.0], dtype=F64)
MATRIX = torch.eye(3, dtype=F64) + 0.1


def several_results(z: Tensor, x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(MATRIX + torch.diag(z))
    return (vectors * values).sum() + x.max(0).values.sum() + torch.stack(x.unbind(1)).sum()


def of_captured_values(z: Tensor, x: Tensor) -> Tensor:
    times = int(CAPTURED[0]) + int(torch.tensor(1.0)) + int(torch.arange(3)[1])
    return (times * z * CAPTURED).sum()


def written_in_place(z: Tensor, x: Tensor) -> Tensor:
    table = torch.tensor([0.0, 1.0, 0.0], dtype=F64)
    table[1:] = z[1:].exp()
    table.mul_(3.0)
    return table.sum() + x.sum()


def second_derivative(z: Tensor, x: Tensor) -> Tensor:
    z = z.detach().requires_grad_()
    (slope,) = torch.autograd.grad((z**3).sum() + (x @ z).exp().sum(), z, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), z)[0]


def as_softmax(z: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.softmax(x @ z, -1) + torch.nn.functional.linear(x, x, z[:1]).sum()


def without_the_arguments(z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return CAPTURED, z


FUNCTIONS = [
    several_results,
    of_captured_values,
    written_in_place,
    second_derivative,
    as_softmax,
    without_the_arguments,
]


def arguments(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z, x = (torch.rand(n, generator=generator, dtype=F64) for n in (3, 12))
    return z, x.view(4, 3)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_graph_does_what_the_function_does(function: Callable[..., Any]) -> None:
    graph = recorded(function, arguments(0))
    for seed in (0, 1, 2):
        torch.testing.assert_close(graph(*arguments(seed)), function(*arguments(seed)))
    assert CAPTURED.tolist() == [2.0, 0.5, 1.0]


@pytest.mark.parametrize("function", [several_results, written_in_place, second_derivative])
def test_the_operations_are_those_that_make_fx_records(function: Callable[..., Any]) -> None:
    def calls(graph: torch.fx.GraphModule) -> list[str]:
        return sorted(
            str(n.target) for n in graph.graph.nodes if n.op == "call_function" and n.users
        )

    assert calls(recorded(function, arguments(0))) == calls(make_fx(function)(*arguments(0)))


def test_several_points_at_once() -> None:
    wide = torch.vmap(recorded(several_results, arguments(0)), in_dims=(0, None))
    points = torch.stack([arguments(seed)[0] for seed in range(4)])
    x = arguments(0)[1]
    graph = recorded(wide, (points[:2].repeat(2, 1), x))
    wanted = torch.stack([several_results(z, x) for z in points])
    torch.testing.assert_close(graph(points, x), wanted)


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z if z.sum() > 0 else -z,
        lambda z: z * float(z[0]),
        lambda z: z * torch.rand(1).item(),
        lambda z: z * torch.zeros(3, dtype=F64).copy_(z)[0].item(),
        lambda z: z * (torch.zeros(3, dtype=F64).copy_(z) + 1)[0].item(),
        lambda z: z if torch.equal(z, CAPTURED) else -z,
    ],
    ids=["if", "float", "random", "written", "of what was written", "equal"],
)
def test_numbers_that_would_be_those_of_one_point(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match=r"aten\..* of a value that depends on the arguments"):
        recorded(function, (torch.ones(3, dtype=F64),))


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z[z > 0].sum() + z,
        lambda z: z + len(z.nonzero()),
        lambda z: torch.masked_select(z, z > 0).sum() + z,
        lambda z: z + len(z.unique()),
        lambda z: z.index_put((z > 0,), torch.zeros((), dtype=F64))[z > 0].std() + z,
    ],
    ids=["mask", "nonzero", "masked_select", "unique", "put"],
)
def test_shapes_that_would_be_those_of_one_point(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match=r"has a shape that depends on the arguments"):
        recorded(function, (torch.tensor([1.0, -1.0, 2.0], dtype=F64),))


def test_numbers_beside_what_was_written() -> None:
    """A write into one tensor makes no number of the others depend on the arguments."""

    def function(z: Tensor) -> Tensor:
        table = torch.zeros_like(z)
        table[:1] = z[:1]
        return table * float(CAPTURED[0]) + z[torch.ones_like(z) > 0]

    graph = recorded(function, (torch.ones(3, dtype=F64),))
    z = torch.tensor([1.5, -1.0, 4.0], dtype=F64)
    torch.testing.assert_close(graph(z), function(z))


def test_a_mask_of_constants_is_no_such_shape() -> None:
    graph = recorded(lambda z: z[CAPTURED > 0.7].sum() + z, (torch.ones(3, dtype=F64),))
    z = torch.tensor([1.0, -1.0, 4.0], dtype=F64)
    torch.testing.assert_close(graph(z), z[[0, 2]].sum() + z)


def test_a_view_of_a_table_that_was_written_into() -> None:
    def function(z: Tensor) -> Tensor:
        table = torch.zeros(3, dtype=F64)
        table[:1] = z[:1]
        return z * float(table[0])

    with pytest.raises(RuntimeError, match="depends on the arguments"):
        recorded(function, (torch.ones(3, dtype=F64),))


def test_layouts_are_those_of_the_tensors() -> None:
    graph = recorded(lambda x: x.mT.exp(), (torch.ones(2, 3, dtype=torch.float32),))
    (node,) = (n for n in graph.graph.nodes if n.target is torch.ops.aten.exp.default)
    cpu = torch.device("cpu")
    assert node.meta["layout"] == Layout(torch.Size((3, 2)), (1, 3), torch.float32, cpu)
    assert node.meta["layout"].empty().stride() == (1, 3)
