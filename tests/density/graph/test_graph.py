"""A simplified graph computes the same as the graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ppgp.density.graph import tracing as graph
from ppgp.density.graph.recorder import recorded
from ppgp.density.graph.simplify import simplified

CONSTANT = torch.linspace(-1, 1, 6, dtype=torch.float64)


def reshaped(z: Tensor) -> Tensor:
    return (z.view(6).expand(6) + 0.0).view(2, 3).reshape(6) * 1.0


def repeated(z: Tensor) -> Tensor:
    return z.exp() / z.exp().sum() + torch.zeros_like(z)


def of_constants(z: Tensor) -> Tensor:
    return z * torch.exp(torch.full((6,), 2.0, dtype=z.dtype).log() * CONSTANT).cumsum(0)


def in_place(z: Tensor) -> Tensor:
    square = torch.zeros_like(z).view(2, 3)
    square.add_(z.view(2, 3))
    square.diagonal().mul_(2.0)
    return square.view(6) + torch.zeros_like(z)


def in_place_of_what_is_repeated(z: Tensor) -> Tensor:
    first, second = 2.0 * z, 2.0 * z
    first.mul_(3.0)
    return first + second


def read_before_and_after_a_write(z: Tensor) -> Tensor:
    x = torch.zeros(2, dtype=z.dtype)
    before = x.sum()
    x[0] = torch.relu(z[0] - 1.0)
    after = x.sum()
    x[1] = z[1]
    return before - 5.0 * after + x.sum() + z


def reshaped_in_place(z: Tensor) -> Tensor:
    return (z.view(1, 6).clone().squeeze_(0) * CONSTANT).unsqueeze_(0).squeeze(0)


def broadcast_zero(z: Tensor) -> Tensor:
    return (z.sum() + torch.zeros(6, dtype=z.dtype)) * torch.ones(6, dtype=z.dtype)


def not_a_number(z: Tensor) -> Tensor:
    return (z - 10.0).log() * 0.0 + z / 0.0


def written_between_two_multiples(z: Tensor) -> Tensor:
    x = z.clone()
    y = x * 2.0
    x.clamp_(max=0.3)
    return y * 3.0 + x


def written_into_a_product_of_constants(z: Tensor) -> Tensor:
    M = torch.matmul(CONSTANT.view(2, 3, 1), CONSTANT[:3].view(1, 3))
    M.diagonal(dim1=1, dim2=2).add_(torch.relu(z[0]))
    return M.sum() + z


def written_to_several(z: Tensor) -> Tensor:
    first, second = torch.zeros_like(z), torch.ones_like(z)
    torch._foreach_add_([first, second], [z, z])
    return (2.0 * second).exp().sum() + first


def written_between_padding_and_sum(z: Tensor) -> Tensor:
    first, last = z[:2].clone(), z[2:] * 3.0
    padded = torch.ops.aten.slice_backward(first, [6], 0, 0, 2, 1)
    first.mul_(10.0)
    return padded + torch.ops.aten.slice_backward(last, [6], 0, 2, 6, 1) + first.sum()


SHARED = torch.zeros(6, dtype=torch.float64)
LAST = SHARED[3:]


def written_through_another_tensor(z: Tensor) -> Tensor:
    SHARED.copy_(z.detach())
    return LAST.exp().sum() + z


def multiples_that_vanish(z: Tensor) -> Tensor:
    return (1e150 * z) * 1e-200 * 1e-200 + z


def empty_constant(z: Tensor) -> Tensor:
    return z.sum() + (z[:0] * torch.full((0,), -10.0, dtype=z.dtype)).sum() + z


@pytest.mark.parametrize(
    "function",
    [
        written_between_two_multiples,
        written_into_a_product_of_constants,
        written_to_several,
        written_between_padding_and_sum,
        written_through_another_tensor,
        multiples_that_vanish,
        empty_constant,
        reshaped,
        repeated,
        of_constants,
        in_place,
        in_place_of_what_is_repeated,
        read_before_and_after_a_write,
        reshaped_in_place,
        broadcast_zero,
        not_a_number,
    ],
    ids=lambda f: f.__name__,
)
def test_value_and_gradient_are_the_same_at_other_points(
    function: Callable[[Tensor], Tensor],
) -> None:
    def both(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_(True)
        value = function(z)
        (gradient,) = torch.autograd.grad(value.square().sum(), z)
        return value.detach(), gradient

    generator = torch.Generator().manual_seed(0)
    points = [torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(3)]
    traced = recorded(both, (points[0],))
    before = len(traced.graph.nodes)
    graph = simplified(traced)
    assert len(graph.graph.nodes) <= before
    for z in points:
        for found, wanted in zip(graph(z.clone()), both(z), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-14, atol=0, equal_nan=True)


def operations(function: Callable[[Tensor], Tensor]) -> list[str]:
    graph = simplified(recorded(function, (torch.ones(6, dtype=torch.float64),)))
    return [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]


def test_what_computes_nothing_is_gone() -> None:
    assert operations(lambda z: (z.exp().view(6).expand(6) + torch.zeros_like(z)) * 1.0) == [
        "aten.exp.default"
    ]
    assert operations(lambda z: z.exp() * z.exp()) == ["aten.exp.default", "aten.mul.Tensor"]
    assert operations(lambda z: z * CONSTANT.exp().log()) == ["aten.mul.Tensor"]


def test_what_depends_on_constants_alone_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.full((100, 100), 0.5, dtype=torch.float64) + torch.eye(100).double()

    def function(z: Tensor) -> Tensor:
        return torch.linalg.cholesky(matrix.square() + 1.0).mT @ z

    z = torch.ones(100, dtype=torch.float64)
    found = simplified(recorded(function, (z,)))
    computed = [str(n.target) for n in found.graph.nodes if n.op == "call_function"]
    assert computed == ["aten._linalg_check_errors.default", "aten.mv.default"]
    assert sum(buffer.numel() for buffer in found.buffers()) <= 100 * 100 + 1
    torch.testing.assert_close(found(2 * z), function(2 * z), rtol=1e-14, atol=0)
    monkeypatch.setattr("ppgp.density.graph.simplify.STORED", 100 * 100 - 1)
    nodes = simplified(recorded(function, (z,))).graph.nodes
    assert "aten.linalg_cholesky_ex.default" in [str(n.target) for n in nodes]


def test_random_numbers_stay_random() -> None:
    graph = simplified(recorded(lambda z: z + torch.randn(6) + torch.randn(6), (torch.zeros(6),)))
    assert sum("randn" in str(n.target) for n in graph.graph.nodes) == 2
    assert not torch.equal(graph(torch.zeros(6)), graph(torch.zeros(6)))


def test_a_graph_of_many_numbers_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(z: Tensor) -> tuple[Tensor, Tensor]:
        return z.square().sum(), 2 * z

    z = torch.arange(3.0, dtype=torch.float64)
    assert not isinstance(graph.traced(function, (z,)), torch.fx.GraphModule)
    monkeypatch.setattr(graph, "HEAVY", 6)
    heavy = graph.traced(function, (z,))
    assert isinstance(heavy, torch.fx.GraphModule)
    value, slope = heavy(z)
    assert float(value) == 5.0
    assert slope.tolist() == [0.0, 2.0, 4.0]


def test_a_loop_of_thousands_of_steps() -> None:
    steps = 3000

    def function(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_(True)
        level, total = z[:1], z[1:]
        for _ in range(steps):
            level = 0.5 * level + z[:1]
            total = total + z[1:]
        value = level.sum() + total.sum()
        return value.detach(), torch.autograd.grad(value, z)[0]

    z = torch.tensor([0.25, 1.0, -0.5], dtype=torch.float64)
    found = graph.traced(function, (z,))
    for point in (z, 2 * z):
        value, slope = found(point)
        # the level tends to 2 z0, and the total is a sum of equal terms
        wanted = float(2 * point[0] + (steps + 1) * point[1:].sum())
        assert float(value) == pytest.approx(wanted, rel=1e-12)
        assert slope.tolist() == pytest.approx([2.0, steps + 1, steps + 1], rel=1e-12)


def test_a_sum_that_holds_one_vector_twice_is_no_concatenation() -> None:
    def function(z: Tensor) -> Tensor:
        padded = torch.ops.aten.slice_backward(z[:3].exp(), [6], 0, 0, 3, 1)
        once = padded + padded
        return once + torch.ops.aten.slice_backward(z[3:], [6], 0, 3, 6, 1)

    z = torch.arange(6.0, dtype=torch.float64)
    found = simplified(recorded(function, (z,)))
    torch.testing.assert_close(found(z + 1), function(z + 1), rtol=0, atol=0)


def test_a_boolean_times_a_constant_without_axes_is_in_double_precision() -> None:
    c = torch.tensor(1e9 / 3, dtype=torch.float64)

    def both(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_(True)
        value = ((z > 0) * c * z).sum() + (z > 1).sum() / c
        return value.detach(), torch.autograd.grad(value, z)[0]

    z = torch.tensor([-1.0, 2.0, 0.5], dtype=torch.float64)
    compiled = graph.traced(both, (z,))
    assert not isinstance(compiled, torch.fx.GraphModule)
    for point in (z, 0.3 - z):
        for found, wanted in zip(compiled(point), both(point), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-15, atol=0)


def test_an_operation_whose_error_the_program_catches_is_not_in_the_graph() -> None:
    def function(z: Tensor) -> Tensor:
        try:
            return z + torch.ones(4, dtype=z.dtype)
        except RuntimeError:
            return 2.0 * z

    z = torch.ones(6, dtype=torch.float64)
    torch.testing.assert_close(recorded(function, (z,))(3.0 * z), 6.0 * z)
