"""A scan in a graph: unused results, tensors from outside, writes, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from loops_of_steps import loops_in
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.density.graph.tracing import traced
from ppgp.errors import NumericalWarning
from ppgp.models.program import Program

F64 = torch.float64
DATA = torch.tensor([2.0, 3.0, 1.5, 1.0], dtype=F64)
POINTS = torch.tensor([[0.4, 0.7, 0.3], [1.2, 0.2, -0.5], [-0.3, 0.9, 0.8]], dtype=F64)
Function = Callable[[Tensor], Tensor]


def both(function: Function) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    def run(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_(True)
        value = function(z)
        slope = torch.autograd.grad(value, z, materialize_grads=True)[0]
        return value.detach(), slope

    return run


def compare(function: Function, loops: int | None = None, abreast: bool = True) -> None:
    """Compare the graph of a function, of one point and of several, with the function itself.

    Args:
        function: z [3] -> a number.
        loops: how many operations of its graph are loops; None for any number.
        abreast: whether it has a graph of several points.
    """
    run = both(function)
    graphs: list[Any] = [traced(run, (POINTS[0].clone(),), k) for k in (None, 3)[: 1 + abreast]]
    for graph in graphs:
        assert loops in (None, len(loops_in(graph)))
    found = [torch.stack(each) for each in zip(*map(graphs[0], POINTS), strict=True)]
    wanted = [torch.stack(each) for each in zip(*map(run, POINTS), strict=True)]
    for each in [found, *(graph(POINTS) for graph in graphs[1:])]:
        for one, other in zip(each, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13, equal_nan=True)


def unused_carry(z: Tensor) -> Tensor:
    """The last carry is the root of 0, of which the derivative is infinite."""

    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return ((x - 1) * level.abs()).sqrt(), level * z[0] * x

    return ppgp.scan(step, z[1], DATA)[1].sum()


def unused_results(z: Tensor) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        return level * z[0] + x, (level, (level - level).sqrt(), (0 * z[1]).log())

    last, (levels, _, _) = ppgp.scan(step, z[2], DATA)
    return last * levels[1]


def unused_part(z: Tensor) -> Tensor:
    """One part of the last carry is used, so that parts get slopes one after another."""

    def step(parts: Any, x: Tensor) -> tuple[Any, Tensor]:
        a, b, c = parts
        return (b * z[0] + x, c * z[1], (a * (x - 1)).sqrt()), a * z[2]

    (last, _, _), _ = ppgp.scan(step, (z[0].exp(), z[1].exp(), z[2].exp()), DATA)
    return last.sin()


def swapped(z: Tensor) -> Tensor:
    def step(parts: Any, x: Tensor) -> tuple[Any, Tensor]:
        return (parts[1] * x, parts[0].sin()), x

    (last, _), _ = ppgp.scan(step, (z[0], z[1]), DATA)
    return last + z[2]


def slopes_of_xs(z: Tensor) -> Tensor:
    """The steps before the last have no slopes at all."""
    xs = torch.stack([z[0], z[1] * z[2], z[2].exp()])
    last, _ = ppgp.scan(lambda level, x: (x.square() * z[0], None), z[1], xs)
    return last


def unused_altogether(z: Tensor) -> Tensor:
    ppgp.scan(lambda level, x: (level * x, level), z[0], DATA)
    return z.square().sum()


@pytest.mark.parametrize(
    "function",
    [unused_carry, unused_results, unused_part, swapped, slopes_of_xs, unused_altogether],
)
def test_results_that_are_not_used(function: Function) -> None:
    compare(function)
    for z in POINTS[:1]:
        assert bool(torch.isfinite(both(function)(z)[1]).all())


def results_in_another_step(z: Tensor) -> Tensor:
    _, ys = ppgp.scan(lambda level, x: (level * z[0] + x, level), z[1], DATA)
    last, _ = ppgp.scan(lambda level, x: (level + (ys * x).sum(), None), z[2], DATA)
    return last


def constant_results(z: Tensor) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        fixed = torch.tensor([1.0, 2.0], dtype=F64)
        return level * z[0] + x, (fixed, torch.ones(2, dtype=F64) * 3, DATA, 2.0, x > 1)

    last, (fixed, ones, data, number, large) = ppgp.scan(step, z[1], DATA)
    return last * (fixed.sum() + ones.sum() + data.sum() + number.sum() + large.sum())


def strides(z: Tensor) -> Tensor:
    """Carry, xs and tensors from outside lie in memory in their own ways."""
    outer = (torch.arange(6.0, dtype=F64).view(2, 3) * z).mT
    first = (z[0] * torch.ones(2, 3, dtype=F64)).mT
    xs = (z[:2, None] * torch.ones(2, 4, dtype=F64)).mT

    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        wide = level.mT.contiguous().mT * x + outer
        return wide.sin(), wide.mT.reshape(-1) + x.expand(3, 2).reshape(-1)

    last, ys = ppgp.scan(step, first, xs)
    return last.sum() + ys.view(-1).cos().sum()


def empty(z: Tensor) -> Tensor:
    xs = (torch.zeros(4, 0, dtype=F64), DATA)
    last, ys = ppgp.scan(lambda c, x: (c * z[0] + x[0].sum() + x[1], x[0]), z[1], xs)
    return last + ys.sum()


def only_empty(z: Tensor) -> Tensor:
    last, _ = ppgp.scan(lambda c, x: (c * z[0] + x.sum(), None), z[1], torch.zeros(4, 0, dtype=F64))
    return last


def results_written_into(z: Tensor) -> Tensor:
    last, ys = ppgp.scan(lambda level, x: (level * z[0] + x, level * x), z[1], DATA)
    ys.mul_(2.0)
    ys[1] = z[2]
    last += 1.0
    return (ys * last).sum()


def no_carry(z: Tensor) -> Tensor:
    return ppgp.scan(lambda c, x: (c, (x * z[0]).sin()), (), DATA)[1].sum() * z[1]


def flags(z: Tensor) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        several = (level > 0.1) + (x > 1.2) * (level < 3)
        return level * z[0] + several * x, torch.logical_and(level, x - 2).to(F64) * level

    last, ys = ppgp.scan(step, z[1], DATA)
    return last + ys.sum()


def multiples(z: Tensor) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        level = torch.ops.aten.rsub.Scalar(level * z[0], 1.0, 3)
        return torch.ops.aten.sub.Scalar(level, x[0], 2) if x.ndim else level, level - 2 * x

    last, ys = ppgp.scan(step, z[1], DATA)
    return last + ys.sin().sum()


@pytest.mark.parametrize(
    "function",
    [
        results_in_another_step,
        constant_results,
        strides,
        empty,
        only_empty,
        results_written_into,
        flags,
        multiples,
    ],
)
def test_what_stays_one_operation(function: Function) -> None:
    compare(function, 4 if function is results_in_another_step else 2)


def test_a_step_that_needs_no_earlier_one_leaves_no_loop() -> None:
    compare(no_carry, 0)


def buffer_from_outside(z: Tensor) -> Tensor:
    """A buffer that is written before a scan, and a copy between two."""
    buffer = torch.zeros(2, dtype=F64)
    buffer[0] = z[0]
    one, _ = ppgp.scan(lambda level, x: (level * x + buffer.sum(), None), z[1], DATA)
    buffer = buffer.clone()
    with torch.no_grad():
        buffer[1] = z[2]
    two, _ = ppgp.scan(lambda level, x: (level * z[0] + buffer.sum() * x, None), z[1], DATA)
    return one + two


def writing_outside(z: Tensor) -> Tensor:
    table = torch.zeros(4, dtype=F64)

    def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            table.add_(x)
        return i + 1, z[0] * x

    _, ys = ppgp.scan(step, torch.tensor(0.0, dtype=F64), DATA)
    return (ys * table.sum()).sum() * z[1]


def writing_inside(z: Tensor) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = level * 1.0
        kept.gt_(0.5)
        level = level * z[0]
        level += x * kept
        return level, kept

    last, ys = ppgp.scan(step, z[1], DATA)
    return last + (ys * z[2]).sum()


def in_place_of_the_carry(z: Tensor) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return level.mul_(x).add_(z[0]), level

    last, ys = ppgp.scan(step, z[1] * 1.0, DATA)
    return last + ys.sum()


def strided(z: Tensor) -> Tensor:
    last, _ = ppgp.scan(lambda c, x: (c * x + c.as_strided((2,), (0,)), None), z[:2] * 1, DATA)
    return last.sum()


def random_numbers(z: Tensor) -> Tensor:
    torch.manual_seed(0)
    last, _ = ppgp.scan(lambda c, x: (c * x + torch.rand(()).to(F64), None), z[0], DATA)
    return last * z[1]


@pytest.mark.parametrize(
    "function",
    [buffer_from_outside, writing_outside, writing_inside, in_place_of_the_carry, strided],
)
def test_writes(function: Function) -> None:
    compare(function, abreast=function is not buffer_from_outside)  # vmap writes into no buffers


def branch_on_a_tensor_from_outside(z: Tensor) -> Tensor:
    level = z[0].exp()

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
        return (c * x if bool(level > 1.5) else c + x), None

    return ppgp.scan(step, z[1], DATA)[0]


def branch_on_a_buffer(z: Tensor) -> Tensor:
    buffer = torch.zeros(2, dtype=F64)
    with torch.no_grad():
        buffer[0] = z[0]
    return ppgp.scan(
        lambda c, x: ((c * x if float(buffer.sum()) > 0 else c + x), None), z[1], DATA
    )[0]


def rows_by_a_mask(z: Tensor) -> Tensor:
    return ppgp.scan(lambda c, x: (c * x + z[z > 0.1].sum(), None), z[1], DATA)[0]


@pytest.mark.parametrize(
    "function", [branch_on_a_tensor_from_outside, branch_on_a_buffer, rows_by_a_mask]
)
def test_branches_on_tensors_from_outside_are_refused(function: Function) -> None:
    with pytest.raises(RuntimeError, match="depends on the arguments"):
        traced(both(function), (POINTS[0].clone(),))


def test_a_branch_on_data_is_recorded() -> None:
    def function(z: Tensor) -> Tensor:
        def step(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
            return (c * x if bool(DATA.sum() > 0) else c + x), None

        return ppgp.scan(step, z[1], DATA)[0]

    compare(function, 2)


def test_a_step_that_keeps_its_tensors_is_refused() -> None:
    def function(z: Tensor) -> Tensor:
        kept: list[Tensor] = []

        def step(level: Tensor, x: Tensor) -> tuple[Tensor, None]:
            kept.append(level * z[0])
            return level + x, None

        ppgp.scan(step, z[1], DATA)
        return torch.stack(kept).sum()

    with pytest.raises(RuntimeError, match="stores a tensor"):
        traced(both(function), (POINTS[0].clone(),))

    def program() -> None:
        z = pyro.sample("z", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
        pyro.factor("loop", function(z))

    target = Target(Program(program), {})
    with pytest.warns(NumericalWarning, match="stores a tensor"):
        target.compiled()
    z = POINTS[1]
    wanted = both(function)(z)
    found = target.value_and_grad(z)
    torch.testing.assert_close(found[1], wanted[1] - z)


def test_a_step_that_counts_its_calls_runs_eagerly() -> None:
    def function(z: Tensor) -> Tensor:
        calls = 0

        def step(level: Tensor, x: Tensor) -> tuple[Tensor, None]:
            nonlocal calls
            calls += 1
            return level * z[0] + calls * x, None

        return ppgp.scan(step, z[1], DATA)[0]

    def program() -> None:
        z = pyro.sample("z", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
        pyro.factor("loop", function(z))

    target = Target(Program(program), {})
    with pytest.warns(NumericalWarning, match="could not be compiled"):
        found = target.value_and_grad(POINTS[1])
    torch.testing.assert_close(found[1], both(function)(POINTS[1])[1] - POINTS[1])


def test_second_derivatives_in_a_graph_are_refused() -> None:
    def function(z: Tensor) -> Tensor:
        last, _ = ppgp.scan(lambda c, x: (c.sin() * x, None), z[0], DATA)
        return torch.autograd.grad(last, z, create_graph=True)[0].sum()

    with pytest.raises(RuntimeError, match="first derivatives alone"):
        traced(both(function), (POINTS[0].clone(),))


def test_a_tensor_from_outside_that_is_written_later_is_refused() -> None:
    def function(z: Tensor) -> Tensor:
        buffer = z.detach() * 2.0
        last, _ = ppgp.scan(lambda c, x: ((c * buffer).sum() * x, None), z[0], DATA)
        buffer.zero_()
        return last

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        traced(both(function), (POINTS[0].clone(),))


def test_complex_numbers_are_recorded_step_by_step() -> None:
    def function(z: Tensor) -> Tensor:
        first = torch.complex(z[0], z[1])
        return ppgp.scan(lambda c, x: (c * first * x, None), first, DATA)[0].abs()

    compare(function, 0)


def test_an_infinite_number_on_the_way() -> None:
    def function(z: Tensor) -> Tensor:
        def step(c: Tensor, x: Tensor) -> tuple[Tensor, None]:
            return torch.where(x > 1, c * z[0] / (x - 1), c), None

        return ppgp.scan(step, z[1], DATA)[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(function, 2)
