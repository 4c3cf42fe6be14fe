"""A scan gives what the Python loop gives, run as it is or compiled, with its derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from loops_of_steps import loops_in
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.density.graph import loops
from ppgp.errors import DataError
from ppgp.models.program import Program

F64 = torch.float64
STEPS = 12
DATA = torch.linspace(-1, 2, STEPS, dtype=F64).sin()
COUPLING = torch.linspace(-0.4, 0.5, 25, dtype=F64).view(5, 5)

Step = Callable[[Any, Any], tuple[Any, Any]]
Loop = Callable[[Step, Any, Any], tuple[Any, Any]]


def plain(step: Step, init: Any, xs: Any) -> tuple[Any, Any]:
    """Return what a Python loop gives, for xs of one tensor or a tuple of them, and a y of one."""
    carry, ys = init, []
    for t in range(STEPS):
        carry, y = step(carry, xs[t] if isinstance(xs, Tensor) else tuple(x[t] for x in xs))
        ys.append(y)
    return carry, torch.stack(ys)


def moving_average(z: Tensor, loop: Loop) -> Tensor:
    def step(error: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        error = x[1] - z[0] - z[1] * x[0] - z[2] * error
        return error, error

    last, errors = loop(step, z[3] * 0.1, (DATA, DATA.flip(0)))
    return errors.square().sum() + last.exp()


def vectors(z: Tensor, loop: Loop) -> Tensor:
    """Return the end of a path of two species, of which xs are the parameters."""

    def step(u: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        u = u + 0.1 * torch.stack([u[0] * (x - z[1].exp() * u[1]), u[1] * (u[0] * z[2] - 0.5)])
        return u, u.log().sum() * torch.ones(3, dtype=F64)

    last, paths = loop(step, z[:2].exp(), z[3] * DATA)
    return last.sum() + (paths * torch.arange(3.0, dtype=F64)).sum()


def matrices(z: Tensor, loop: Loop) -> Tensor:
    def step(K: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        K = torch.tanh(COUPLING @ K + z[0] * x + z[1] * torch.eye(5, dtype=F64))
        return K, K.diagonal()

    last, diagonals = loop(step, z[2] * COUPLING, DATA)
    return last.sum() + diagonals.square().sum()


def counted(z: Tensor, loop: Loop) -> Tensor:
    """Return a sum of which the carry holds a whole number too, and a part that stays."""

    def step(carry: tuple[Tensor, ...], x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        count, total, kept = carry
        total = total + (z[0] * x).exp() * count / 7 + kept
        return (count + 1, total, kept), total.detach() * x

    init = (torch.tensor(1), z[1], z[2].sin())
    (count, total, kept), ys = loop(step, init, DATA)
    return total * count + kept + ys.sum()


def branching(z: Tensor, loop: Loop) -> Tensor:
    """Return what depends on an ``if`` on the data, so that steps are recorded one by one."""

    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        level = z[0] * level if bool(x > 0) else level + z[1]
        return level, level * x

    last, ys = loop(step, z[2], DATA)
    return last + ys.square().sum()


def held_back(z: Tensor, loop: Loop) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            held = (level * z[0]).sin()
        return level * z[1] + held, held * level

    last, ys = loop(step, z[2], DATA)
    return last + ys.sum()


def written(z: Tensor, loop: Loop) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        table = torch.zeros(3, dtype=F64)
        table[1] = level * z[0]
        return table.sum() + z[1] * x, table

    last, ys = loop(step, z[2], DATA)
    return last + ys.square().sum()


def infinite(z: Tensor, loop: Loop) -> Tensor:
    """Return a number of which a part is divided by zero on the way."""

    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        level = z[0] * level + x
        return level, level * (2.0 + (-1.0 / (0.0 * x.abs())).exp())

    last, ys = loop(step, z[1], DATA)
    return last + ys.sum()


def nested(z: Tensor, loop: Loop) -> Tensor:
    def outer(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        last, ys = loop(lambda c, w: (0.5 * c + z[0] * w * x, c), level, DATA)
        return torch.tanh(last + z[1]), ys.sum()

    last, ys = loop(outer, z[2], DATA)
    return last + ys.sum()


def passed_on(z: Tensor, loop: Loop) -> Tensor:
    """Return what depends on tensors that a step only passes on."""

    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return first, second

    first, second = z[0].exp(), z[1:3].sin()
    last, ys = loop(step, z[2], DATA)
    return last * ys.sum()


def in_single_precision(z: Tensor, loop: Loop) -> Tensor:
    def step(level: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        level = 0.5 * level + (x * z[0]).float()
        return level, level.sin()

    last, ys = loop(step, z[1].float(), DATA)
    return last.double() + ys.double().sum()


FUNCTIONS = [
    passed_on,
    in_single_precision,
    moving_average,
    vectors,
    matrices,
    counted,
    branching,
    held_back,
    written,
    infinite,
    nested,
]
ON_FLOATS = [moving_average, vectors]
every = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)


def points() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [0.5 * torch.randn(4, generator=generator, dtype=F64) for _ in range(3)]


def slope(function: Callable[..., Tensor], z: Tensor, loop: Loop) -> tuple[Tensor, Tensor]:
    z = z.detach().requires_grad_()
    value = function(z, loop)
    return value.detach(), torch.autograd.grad(value, z)[0]


def target_of(function: Callable[..., Tensor]) -> Target:
    def program() -> None:
        z = pyro.sample("z", dist.Normal(torch.zeros(4, dtype=F64), 1.0).to_event(1))
        pyro.factor("loop", function(z, ppgp.scan))

    return Target(Program(program), {})


@every
def test_values_and_slopes_are_those_of_the_loop(function: Callable[..., Tensor]) -> None:
    for z in points():
        pairs = zip(slope(function, z, ppgp.scan), slope(function, z, plain), strict=True)
        assert all(torch.equal(found, wanted) for found, wanted in pairs)


@every
def test_a_compiled_program_gives_those_of_the_loop(function: Callable[..., Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        target = target_of(function)
        compiled = target.compiled()
    assert not target.eager
    for z in points():
        value, found = compiled(z)
        wanted = slope(function, z, plain)
        prior = dist.Normal(torch.zeros(4, dtype=F64), 1.0).log_prob(z).sum()
        # rounding errors of some hundred operations
        torch.testing.assert_close(value, wanted[0] + prior, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found, wanted[1] - z, rtol=1e-12, atol=1e-12)


@every
def test_several_points_at_once(function: Callable[..., Tensor]) -> None:
    target = target_of(function)
    z = torch.stack(points())
    values, slopes = target.value_and_grad_batch(z)
    for i, one in enumerate(z):
        value, found = target.value_and_grad(one)
        torch.testing.assert_close(values[i], value, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(slopes[i], found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("function", [moving_average, vectors, matrices, counted, nested])
def test_a_body_is_recorded_once(function: Callable[..., Tensor]) -> None:
    calls = 0

    def counting(step: Step, init: Any, xs: Any) -> tuple[Any, Any]:
        def counted(carry: Any, x: Any) -> tuple[Any, Any]:
            nonlocal calls
            calls += 1
            return step(carry, x)

        return ppgp.scan(counted, init, xs)

    from ppgp.density.graph.recorder import recorded

    z = points()[0]
    graph = recorded(lambda z: slope(function, z, counting), (z,))
    assert calls <= 1 + STEPS * (function is nested)
    loops = [n for n in graph.graph.nodes if "loops" in getattr(n.target, "__module__", "")]
    assert len(loops) == 2  # there and back
    for found, wanted in zip(graph(z), slope(function, z, plain), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def loops_of(function: Callable[..., Tensor], k: int | None = None) -> list[loops.Loop]:
    """Return the loops of the graph of a density."""
    target = target_of(function)
    graph: Any = target.compiled(k=k)
    assert not target.eager
    return loops_in(graph.graph)


@pytest.mark.parametrize("function", ON_FLOATS)
@pytest.mark.parametrize("k", [None, 3])
def test_a_small_body_runs_on_floats(function: Callable[..., Tensor], k: int | None) -> None:
    found = loops_of(function, k)
    assert len(found) == 2
    assert all(loop.floats is not None for loop in found)


def test_a_body_in_single_precision_runs_on_floats_in_such_a_program() -> None:
    """In a program in double precision, the rounding of each step would be missed."""

    def program(y: Tensor) -> None:
        theta = pyro.sample("theta", dist.Normal(torch.zeros((), dtype=y.dtype), 1.0))

        def step(error: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            error = x - theta * error
            return error, error

        _, errors = ppgp.scan(step, torch.zeros((), dtype=y.dtype), y)
        pyro.factor("errors", -errors.square().sum())

    single, double = (Target(Program(program), {"y": DATA.to(t)}) for t in (torch.float32, F64))
    z = torch.tensor([0.3], dtype=F64)
    value, slope = single.value_and_grad(z.float())
    wanted = double.value_and_grad(z)
    assert value.dtype == slope.dtype == torch.float32
    torch.testing.assert_close(value.double(), wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(slope.double(), wanted[1], rtol=1e-5, atol=1e-5)
    graph: Any = single.compiled(k=None)
    found = loops_in(graph.graph)
    assert len(found) == 2
    assert all(loop.floats is not None for loop in found)
    assert all(loop.floats is None for loop in loops_of(in_single_precision))


@pytest.mark.parametrize("function", [moving_average, vectors, matrices])
def test_second_derivatives(function: Callable[..., Tensor]) -> None:
    z = points()[0]
    found, wanted = (
        torch.autograd.functional.hessian(lambda z, loop=loop: function(z, loop), z)
        for loop in (ppgp.scan, plain)
    )
    assert torch.equal(found, wanted)
    own = target_of(function).hessian(z) + torch.eye(4, dtype=F64)
    torch.testing.assert_close(own, wanted, rtol=1e-10, atol=1e-10)


def test_under_vmap() -> None:
    z = torch.stack(points())
    found = torch.vmap(lambda one: moving_average(one, ppgp.scan))(z)
    wanted = torch.stack([moving_average(one, plain) for one in z])
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=1e-14)


def test_structures() -> None:
    def step(carry: dict[str, Tensor], x: dict[str, Any]) -> tuple[dict[str, Tensor], Any]:
        level = carry["level"] + x["a"] * x["b"][0]
        return {"level": level, "other": carry["other"]}, [level, {"twice": 2 * level}]

    init = {"level": torch.tensor(1.0), "other": torch.zeros(2)}
    xs = {"a": torch.arange(3.0), "b": (torch.ones(3),)}
    last, (levels, twice) = ppgp.scan(step, init, xs)
    assert float(last["level"]) == 4.0
    assert levels.tolist() == [1.0, 2.0, 4.0]
    assert twice["twice"].tolist() == [2.0, 4.0, 8.0]
    assert ppgp.scan(lambda c, x: (c + x, None), torch.tensor(0.0), torch.ones(4))[1] is None


def test_a_fit_finds_the_coefficient_of_least_squares() -> None:
    """The mode under a flat prior is the least-squares slope of y[t] on y[t-1]."""

    def program(y: Tensor) -> None:
        phi = pyro.sample("phi", dist.Uniform(torch.tensor(-5.0, dtype=F64), 5.0))
        _, errors = ppgp.scan(lambda last, y: (y, y - phi * last), y[0], y[1:])
        pyro.factor("errors", -0.5 * errors.square().sum())

    y = DATA + 0.1 * torch.cos(7 * torch.arange(STEPS, dtype=F64))
    posterior = ppgp.fit(program, {"y": y}, ppgp.inference.MAP(), progress=False)
    wanted = float((y[1:] * y[:-1]).sum() / (y[:-1] * y[:-1]).sum())
    found = float(torch.as_tensor(posterior.draws["phi"]).reshape(()))
    assert found == pytest.approx(wanted, rel=1e-5)


ONE = torch.tensor(0.0)


@pytest.mark.parametrize(
    ("step", "init", "xs", "message"),
    [
        (lambda c, x: (c[None], x), ONE, torch.ones(3), r"a carry of shape \(\) .* shape \(1,\)"),
        (lambda c, x: (c.double(), x), ONE, torch.ones(3), "float32 .* float64"),
        (lambda c, x: ((c, c), x), ONE, torch.ones(3), r"structure \* .* got \(\*, \*\)"),
        (lambda c, x: (1.0, x), ONE, torch.ones(3), "got float: give init"),
        (lambda c, x: c, ONE, torch.ones(3), r"a tuple \(carry, y\)"),
        (lambda c, x: (c + 1, c.expand(int(c))), ONE, torch.ones(3), r"got \* of shape \(1,\)"),
        (lambda c, x: (c, x), 0.0, torch.ones(3), "a carry made of tensors, got float"),
        (lambda c, x: (c, x), ONE, torch.ones(0), "at least one step"),
        (lambda c, x: (c, x), ONE, (torch.ones(3), torch.ones(4)), "lengths 3, 4"),
        (lambda c, x: (c, x), ONE, (), "xs of tensors .* got None"),
        (lambda c, x: (c, x), ONE, torch.tensor(3), "got a number"),
        (lambda c, x: (c, x), ONE, ([1.0, 2.0],), "got float: write torch.tensor"),
        (lambda c, x: (c, x), ONE, np.ones(3), r"got ndarray: write torch.as_tensor\(xs\)"),
        (lambda c, x: (c, "y"), ONE, torch.ones(3), "got str from the step"),
        (lambda c, x: (c, c, x), ONE, torch.ones(3), "got tuple of 3"),
        (lambda c, x: [c, x], ONE, torch.ones(3), "got list"),
        (lambda c, x: (torch.cat([c, c]), x), ONE[None], torch.ones(3), "grows .* returned as y"),
    ],
)
def test_mistakes(step: Step, init: Any, xs: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ppgp.scan(step, init, xs)
