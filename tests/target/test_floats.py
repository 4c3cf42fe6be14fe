"""Operations on small tensors give on floats what they give on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ppgp.target import graph as graphs
from ppgp.target import segments
from ppgp.target.floats import DTYPES, EXPRESSIONS, Lines, function_of, inlined, runs_on_floats
from ppgp.target.recorder import recorded
from ppgp.target.segments import Segmented, in_segments

aten = torch.ops.aten
F64 = torch.float64
NUMBERS = torch.tensor([[0.3, 0.8, 0.25], [0.6, 0.45, 0.9]], dtype=F64)
LINE = torch.linspace(-1, 1, 40, dtype=F64)


def on_floats(function: Callable[..., Any], x: Tensor) -> list[Tensor]:
    """Return what a function of a tensor gives, each of whose operations has to run on floats."""
    graph = recorded(function, (x,)).graph
    nodes = list(graph.nodes)
    constants = {
        n: getattr(graph.owning_module, str(n.target)) for n in nodes if n.op == "get_attr"
    }
    lines = Lines(constants)
    lines.take(nodes[0], "given")
    for node in nodes:
        if node.op == "call_function":
            if hasattr(node.target, "_schema"):  # not a part of several results
                assert runs_on_floats(node, constants), node.target
            lines.write(node)
    results: Any = nodes[-1].args[0]
    results = results if isinstance(results, tuple | list) else [results]
    shown = [lines.shown(node) for node in results]
    run = function_of([*lines.lines, f"return [{', '.join(shown)}]"], "test", "given")
    found = run(x.flatten().tolist() if x.ndim else x.item())
    layouts = [node.meta["layout"] for node in results]
    return [
        torch.tensor(each, dtype=layout.dtype).view(layout.shape)
        for each, layout in zip(found, layouts, strict=True)
    ]


def compare(function: Callable[..., Any], x: Tensor) -> None:
    wanted = function(x)
    wanted = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    for one, other in zip(on_floats(function, x), wanted, strict=True):
        # libm and the vectorised functions of torch differ by some units in the last place
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-15, equal_nan=True)


def arguments_of(target: Any, x: Tensor) -> list[Any]:
    """Return arguments of an operation, made of x; numbers where its schema asks for them."""
    bools = "logical" in str(target) or "bitwise" in str(target)
    made: list[Any] = []
    for argument in target._schema.arguments:
        if argument.kwarg_only or argument.has_default_value():
            continue
        kind = str(argument.type)
        if kind == "Tensor":
            y = x.flip(0) if made else x
            y = x[0, 0] if argument.name == "value" else y
            made.append(y > 0.5 if bools or argument.name in ("condition", "mask") else y)
        else:
            made.append(0.5)
    return made


@pytest.mark.parametrize("target", list(EXPRESSIONS), ids=str)
def test_entry_by_entry(target: Any) -> None:
    compare(lambda x: target(*arguments_of(target, x)), NUMBERS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[0, 1:].sum() + x.mT @ x,
        lambda x: torch.stack([x[1, 0], x.sum()]).unsqueeze(1).expand(2, 3) * x,
        lambda x: torch.cat([x.view(6), x[0]]).flip(0),
        lambda x: list(x.unbind(1)),
        lambda x: list(x.split(2, 1)),
        lambda x: x.sum(0, keepdim=True) - x.sum((-1, 0)),
        lambda x: torch.dot(x[0], x[1]) * (x @ x[0]),
        lambda x: x.permute(1, 0).reshape(2, 3) ** 3 + x**0.5 + x**2 + x**-1.5 + x**1.0,
        lambda x: aten.select_backward(x[0], [2, 3], 0, 1) + x,
        lambda x: aten.slice_backward(x[:, :1], [2, 3], 1, 2, 3, 1) * 2.0 + 1.0 * x,
        lambda x: (-x).diagonal() * -2.0 - -1.0,
        lambda x: x[0] * float("inf") + torch.tensor([float("nan"), 1.0, -2.0], dtype=F64),
        lambda x: x.squeeze(0).clone().detach() == x[:1],
    ],
)
def test_moves_sums_and_powers(function: Callable[..., Any]) -> None:
    compare(function, NUMBERS)


def test_not_a_number_stays_one() -> None:
    x = torch.tensor([float("nan"), -1.0, 2.0], dtype=F64)
    for function in (torch.relu, lambda x: torch.maximum(x, x.flip(0)), lambda x: x > 0.0):
        compare(function, x)
    compare(lambda x: torch.minimum(x, x.flip(0)), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.digamma(x),
        lambda x: x.float() + 1.0,
        lambda x: torch.add(x, x, alpha=2),
        lambda x: torch.div(x, x, rounding_mode="floor"),
        lambda x: x.repeat(3, 1) + 1.0,
        lambda x: (x > 0).sum(),
    ],
)
def test_what_stays_with_torch(function: Callable[..., Any]) -> None:
    nodes = recorded(function, (NUMBERS,)).graph.nodes
    assert not all(runs_on_floats(n, {}) for n in nodes if n.op == "call_function")
    assert torch.float32 not in DTYPES


def alternating(z: Tensor) -> Tensor:
    scale = z[0].exp()
    curve = (LINE * scale).sin() + z[1]
    total = curve.sum()
    return torch.stack([curve[3] * total, z[2] - total]).square().sum() * z[1:].sum()


def changed_in_place(z: Tensor) -> Tensor:
    x = z * 2.0
    x.masked_fill_(z > 0.2, -0.5)
    y = x.exp()
    x.mul_(z)
    return (x + y).sum()


def divided_by_zero(z: Tensor) -> Tensor:
    return (1.0 / (z[0] - 0.5)).abs() + z[1] + (-1.0 / (z[0] - 0.5) ** 2).exp()


def outside_of_a_domain(z: Tensor) -> Tensor:
    return torch.where(z > 0.0, z.log(), z).sum() + (1000.0 * z[0]).exp()


@pytest.mark.parametrize(
    "function", [alternating, changed_in_place, divided_by_zero, outside_of_a_domain]
)
def test_a_graph_in_segments(
    function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_(True)
        value = function(z)
        return value.detach(), torch.autograd.grad(value, z)[0]

    monkeypatch.setattr(segments, "MANY", 1)
    z = torch.tensor([0.3, 0.1, 0.6], dtype=F64)
    found = graphs.traced(both, (z,))
    assert isinstance(found, Segmented)
    points = torch.stack([z, z + 0.2, -z, 2 * z])
    for point in points:
        for one, other in zip(found(point), both(point), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13, equal_nan=True)
    monkeypatch.setattr(segments, "FLOATS_PER_TENSOR", 0)
    wide = graphs.traced(both, (z,), k=len(points))
    values, slopes = wide(points)
    assert torch.equal(values, torch.stack([found(point)[0] for point in points]))
    assert slopes.shape == points.shape


def test_what_is_left_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.tensor([0.3, 0.1, 0.6], dtype=F64)

    def back_and_forth(z: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(10):
            z = torch.digamma(z.exp()) + z.sum()
        return z.sum(), z

    def written_through_a_view(z: Tensor) -> tuple[Tensor, Tensor]:
        x = z.exp()
        x[1:].mul_(2.0)
        return x.sum(), x

    def at_random(z: Tensor) -> tuple[Tensor, Tensor]:
        return (z.exp() * torch.randn(3, dtype=F64)).sum(), z

    def few(z: Tensor) -> tuple[Tensor, Tensor]:
        return z.exp().sum(), z

    def script(graph: Any, example: Any) -> Any:
        return graph

    assert in_segments(recorded(few, (z,)), (z,), script) is None
    monkeypatch.setattr(segments, "MANY", 1)
    assert in_segments(recorded(few, (z,)), (z,), script) is not None
    for function in (back_and_forth, written_through_a_view, at_random):
        assert in_segments(recorded(function, (z,)), (z,), script) is None


def test_variables_that_are_read_once_are_written_in_place() -> None:
    lines = ["v1 = 2.0 * v0", "v2 = v1 + 1.0", "v3 = v2 * v2", "v4 = v3 - 1.0", "v5 = v4", "f(v5)"]
    found = inlined(lines)
    assert found == ["v2 = (2.0 * v0) + 1.0", "f((((v2 * v2) - 1.0)))"]
    assert inlined(lines[:2], ["v1", "v2"]) == lines[:2]
    assert inlined(["v1 = v0", "yield v0", "v2 = v1"]) == ["v1 = v0", "yield v0", "v2 = v1"]


def test_long_sums_are_not_nested_too_deeply() -> None:
    lines = [f"v{i} = v{i - 1} + 1.0" for i in range(1, 2001)]
    run = function_of([*inlined(lines, ["v2000"]), "return v2000"], "test", "v0")
    assert run(0.5) == 2000.5
