"""Operations on small tensors give on floats what they give on tensors, or are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ppgp.density.graph.floats import (
    CONDITIONS,
    EXPRESSIONS,
    LOGIC,
    Lines,
    function_of,
    inlined,
    runs_on_floats,
)
from ppgp.density.graph.recorder import recorded

aten = torch.ops.aten
F64 = torch.float64
NUMBERS = torch.tensor([[0.3, 0.8, 0.25], [0.6, 0.45, 0.9]], dtype=F64)
SPECIAL = [0.0, -0.0, 1.0, -2.5, 1e-320, 1e300, -800.0, float("inf"), -float("inf"), float("nan")]


def refused(function: Callable[..., Any], *x: Tensor) -> bool:
    nodes = recorded(function, x).graph.nodes
    return not all(runs_on_floats(n) for n in nodes if n.op == "call_function")


def on_floats(function: Callable[..., Any], *given: Tensor) -> list[Tensor]:
    """Return what a function of tensors gives, each of whose operations has to run on floats."""
    graph = recorded(function, given)
    nodes = list(graph.graph.nodes)
    constants = {n: getattr(graph, str(n.target)) for n in nodes if n.op == "get_attr"}
    lines = Lines(constants)
    arguments = lines.fresh([n for n in nodes if n.op == "placeholder"])
    for node in nodes:
        if node.op == "call_function":
            assert runs_on_floats(node), (node.target, node.args, node.kwargs)
            lines.write(node)
    results: Any = nodes[-1].args[0]
    results = list(results) if isinstance(results, tuple | list) else [results]
    names = [name for node in results for name in lines.of(node)]
    text = [*inlined(lines.lines, names), f"return [{', '.join(names)}]"]
    run = function_of(text, "test", ", ".join(arguments))
    found = run(*(number for x in given for number in x.flatten().tolist()))
    tensors = []
    for node in results:
        layout = node.meta["layout"]
        own, found = found[: layout.shape.numel()], found[layout.shape.numel() :]
        tensors.append(torch.tensor(own, dtype=layout.dtype).reshape(layout.shape))
    return tensors


def compare(function: Callable[..., Any], *x: Tensor) -> None:
    wanted = function(*x)
    wanted = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    for one, other in zip(on_floats(function, *x), wanted, strict=True):
        # libm and the vectorised functions of torch differ by some units in the last place
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-15, equal_nan=True)


def call_of(target: Any) -> tuple[Callable[..., Any], list[torch.dtype]]:
    """Return an operation as a function of its tensors, and their dtypes; 0.5 for its numbers."""
    needed = [a for a in target._schema.arguments if not a.has_default_value()]
    tensors = [i for i, a in enumerate(needed) if str(a.type) == "Tensor"]
    condition = CONDITIONS.get(target)
    dtypes = [torch.bool if target in LOGIC or i == condition else F64 for i in tensors]

    def call(*given: Tensor) -> Any:
        args: list[Any] = [0.5] * len(needed)
        for i, x in zip(tensors, given, strict=True):
            args[i] = x
        return target(*args)

    return call, dtypes


every = pytest.mark.parametrize("target", list(EXPRESSIONS), ids=str)


@every
def test_entry_by_entry(target: Any) -> None:
    call, dtypes = call_of(target)
    given = [NUMBERS.flip(i % 2) for i in range(len(dtypes))]
    given = [x > 0.5 if dtype is torch.bool else x for x, dtype in zip(given, dtypes, strict=True)]
    if target is aten.masked_fill.Tensor:
        given[2] = given[2][0, 0]
    compare(call, *given)


@every
def test_special_numbers(target: Any) -> None:
    """They give what torch gives, or an error, at which a loop runs on tensors."""
    call, dtypes = call_of(target)
    choices = [[True, False] if dtype is torch.bool else SPECIAL for dtype in dtypes]
    failed = 0
    for numbers in itertools.product(*choices):
        given = [torch.tensor(x, dtype=dtype) for x, dtype in zip(numbers, dtypes, strict=True)]
        try:
            (found,) = on_floats(call, *given)
        except (ArithmeticError, ValueError):
            failed += 1
            continue
        torch.testing.assert_close(found, call(*given), rtol=1e-14, atol=0, equal_nan=True)
    assert failed < len(SPECIAL) ** len(dtypes)


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
        lambda x: (x > 0.4) * x + x * (x > 0.7),
        lambda x: x.mT.exp().view(3, 2).mT.sum() + x[:, :0].sum() + x[:, :0].sum(1),
        lambda x: x.sum().sum(0) + x.sum().sum(),
    ],
)
def test_moves_sums_and_powers(function: Callable[..., Any]) -> None:
    compare(function, NUMBERS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.digamma(x),
        lambda x: x.float() + 1.0,
        lambda x: torch.add(x, x, alpha=2),
        lambda x: aten.add.Scalar(x, 1.0, 3),
        lambda x: aten.sub.Scalar(x, 1.0, 3),
        lambda x: aten.rsub.Scalar(x, 1.0, 3),
        lambda x: torch.div(x, x, rounding_mode="floor"),
        lambda x: x.repeat(3, 1) + 1.0,
        lambda x: (x > 0).sum(),
        lambda x: (x > 0) + (x < 0.5),
        lambda x: (x > 0) * (x < 0.5),
        lambda x: torch.logical_and(x, x > 0.5),
        lambda x: torch.logical_or(x - 0.3, x - 0.8),
        lambda x: torch.logical_not(x),
        lambda x: (x > 0.5).masked_fill(x > 0.7, 2.0),
        lambda x: torch.where(x > 0.5, x > 0.7, x),
        lambda x: torch.cat([x, x > 0.5]),
        lambda x: x.clone().add_(x),
        lambda x: (x > 0.5) == 1,
        lambda x: torch.maximum(x > 0.5, x > 0.7),
    ],
)
def test_what_stays_with_torch(function: Callable[..., Any]) -> None:
    assert refused(function, NUMBERS)


def test_variables_that_are_read_once_are_written_in_place() -> None:
    lines = ["v1 = 2.0 * v0", "v2 = v1 + 1.0", "v3 = v2 * v2", "v4 = v3 - 1.0", "v5 = v4"]
    assert inlined(lines, ["v5"]) == ["v2 = (2.0 * v0) + 1.0", "v5 = ((v2 * v2) - 1.0)"]
    assert inlined(lines[:2], ["v1", "v2"]) == lines[:2]
    assert inlined(lines) == ["v2 = (2.0 * v0) + 1.0"]  # nothing reads the last one


def test_long_sums_are_not_nested_too_deeply() -> None:
    lines = [f"v{i} = v{i - 1} + 1.0" for i in range(1, 2001)]
    run = function_of([*inlined(lines, ["v2000"]), "return v2000"], "test", "v0")
    assert run(0.5) == 2000.5
