"""Programs with branches on values: a graph for each way through them, checked by the program."""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.reparam import LatentStableReparam, StableReparam
from scipy import integrate, stats
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import handlers
from ppgp.density.graph import branches, machine_code
from ppgp.density.graph.batching import Batched
from ppgp.density.graph.recorder import recorded
from ppgp.density.handlers import over_draws
from ppgp.density.target import Target
from ppgp.errors import NotApplicable
from ppgp.models.program import Program

LLVM = importlib.util.find_spec("llvmlite") is not None
Y = torch.linspace(-1.0, 2.0, 7, dtype=torch.float64)


def number(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def kinked(y: Tensor) -> None:
    """A rate that is 1 below 0 and 3 above it."""
    zero = torch.zeros((), dtype=y.dtype)
    x = pyro.sample("x", dist.Normal(zero, zero + 1))
    rate = 3 * x if x > 0 else x
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(rate, zero + 1), obs=y)


def of_three_signs(y: Tensor) -> None:
    x = pyro.sample("x", dist.Normal(torch.zeros(3, dtype=y.dtype), 1.0).to_event(1))
    shift = torch.zeros((), dtype=y.dtype)
    for i in range(3):
        if x[i] > 0:
            shift = shift + (i + 1) * x[i]
        elif bool(x[i] < -1):
            shift = shift - x[i].square()
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(shift, shift.square() + 1), obs=y)


def root_by_newton(y: Tensor) -> None:
    """The number of steps of a search depends on a site."""
    a = pyro.sample("a", dist.LogNormal(torch.zeros((), dtype=y.dtype), 0.5))
    root = torch.ones((), dtype=y.dtype)
    while (root * root - a).abs() > 1e-3 * a:
        root = (root + a / root) / 2
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(root, torch.ones((), dtype=y.dtype)), obs=y)


def without_a_branch_but_masked(y: Tensor) -> None:
    """Numbers are written where a mask of one value, and one of several, is true."""
    x = pyro.sample("x", dist.Normal(torch.zeros(4, dtype=y.dtype), 1.0).to_event(1))
    top = x[0] * 2
    top[top > 1] = 0.1  # which float32 does not hold
    rest = x * 3
    rest[rest < 0] = 0
    pairs = torch.stack([x, -x], -1) * 1
    pairs[x > 0] = 0.5
    mean = top + rest.sum() + (pairs * pairs).sum()
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mean, torch.ones((), dtype=y.dtype)), obs=y)


PROGRAMS = [kinked, of_three_signs, root_by_newton, without_a_branch_but_masked]


def points_of(target: Target, count: int = 40) -> Tensor:
    drawn = torch.Generator().manual_seed(3)
    like = target.survey.like
    return torch.randn(count, target.dim, generator=drawn, dtype=like.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("program", PROGRAMS)
def test_graphs_of_all_ways_have_the_values_of_the_program(program: Any, dtype: Any) -> None:
    target = Target(Program(program), {"y": Y.to(dtype)})
    near = 1e-10 if dtype == torch.float64 else 1e-4
    z = points_of(target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        several = target.value_and_grad_batch(z)
        called = target.callback(often=True)
    for i, point in enumerate(z):
        own = target.eager_gradient(True, point)
        found = target.value_and_grad(point)
        for a, b, c in zip(own, found, several, strict=True):
            torch.testing.assert_close(b, a, rtol=near, atol=near)
            torch.testing.assert_close(c[i], a, rtol=near, atol=near)
        value, gradient = called(point.double().numpy())
        np.testing.assert_allclose(value, own[0].item(), rtol=near, atol=near)
        np.testing.assert_allclose(gradient, own[1].double().numpy(), rtol=near, atol=near)
    assert not target.eager
    assert not target.notes


def graphs_of(target: Target) -> branches.Branching:
    """Return the graphs of one point."""
    found: Any = target.compiled()
    return getattr(found, "graph", found)


def count_of_runs(target: Target, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one at each run of the program."""
    runs: list[int] = []
    own = target.run_program

    def counted(*args: Any) -> None:
        runs.append(1)
        own(*args)

    monkeypatch.setattr(target, "run_program", counted)
    return runs


@pytest.mark.parametrize("often", [False, True])
def test_points_of_a_known_way_do_not_run_the_program(
    often: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(Program(kinked), {"y": Y})
    call = target.callback(often=often)
    z = points_of(target, 200).numpy()
    runs = count_of_runs(target, monkeypatch)
    for point in z:
        call(point)
    assert abs(len(runs) - branches.FIRST) <= 5  # with those that record
    runs.clear()
    for point in z:
        call(point)
    assert not runs
    assert len(graphs_of(target).graphs) == 2


def test_at_most_so_many_ways_have_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "COST", 0.0)  # graphs are not given up
    monkeypatch.setattr(branches, "APART", 2)
    target = Target(Program(of_three_signs), {"y": Y})
    z = points_of(target, 700)
    ways = np.unique(np.digitize(z.numpy(), [-1, 0]), axis=0)
    assert len(ways) > branches.MOST_WAYS
    for point in z:
        torch.testing.assert_close(target.value_and_grad(point)[0], target.log_density(point))
    assert len(graphs_of(target).graphs) == branches.MOST_WAYS


def test_graphs_of_a_program_that_goes_another_way_each_time_are_given_up() -> None:
    def program(y: Tensor) -> None:
        x = pyro.sample("x", dist.Normal(torch.zeros(12, dtype=y.dtype), 1.0).to_event(1))
        total = sum(v if v > 0 else v * v for v in x)
        pyro.sample("y", dist.Normal(total, number(1)), obs=y)

    target = Target(Program(program), {"y": number(1)})
    z = points_of(target, 300)
    for point in z:
        torch.testing.assert_close(target.value_and_grad(point)[0], target.log_density(point))
    graph = graphs_of(target)
    assert graph.given_up
    assert len(graph.graphs) <= 4
    torch.testing.assert_close(graph(z[0]), target.eager_gradient(True, z[0]))


@pytest.mark.parametrize(
    "how", [inference.NUTS(draws=20, warmup=20, chains=1), inference.SVI(steps=50)]
)
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")  # so few draws
def test_an_operation_that_a_condition_guards_does_not_run_where_it_fails(how: Any) -> None:
    table = torch.arange(3.0, dtype=torch.float64)

    def program(y: Tensor) -> None:
        x = pyro.sample("x", dist.Normal(number(0), number(2)))
        k = (x.abs() * 2).floor().long()
        mean = table.gather(0, k[None])[0] * x if k < 3 else x
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mean, number(1)), obs=y)

    target = Target(Program(program), {"y": Y})
    z = torch.tensor([[0.3], [2.5], [-4.0], [1.2]], dtype=torch.float64)
    values, gradients = target.value_and_grad_batch(z)
    for i, point in enumerate(z):
        own = target.eager_gradient(True, point)
        torch.testing.assert_close((values[i], gradients[i]), own)
        torch.testing.assert_close(target.value_and_grad(point), own)
    assert bool(ppgp.fit(program, {"y": Y}, how, progress=False).draws["x"].isfinite().all())


def test_programs_in_single_precision_keep_their_conditions() -> None:
    """A condition on float32 may hold where it does not in float64."""

    def program(y: Tensor) -> None:
        x = pyro.sample("x", dist.Normal(torch.zeros(()), 1.0))
        s = torch.sigmoid(10 * x)
        mean = -torch.log1p(-s) if s < 1 else 0 * x + 5.0
        pyro.sample("y", dist.Normal(mean, 2.0), obs=y)

    target = Target(Program(program), {"y": torch.tensor(1.0)})
    called = target.callback(often=True)
    for at in np.linspace(1.2, 2.2, 41):
        own, _ = target.eager_gradient(True, torch.tensor([at], dtype=torch.float32))
        assert called(np.array([at]))[0] == pytest.approx(own.item(), rel=1e-5)


def test_ways_beyond_the_last_graph_run_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MOST_WAYS", 1)
    target = Target(Program(kinked), {"y": Y})
    runs = count_of_runs(target, monkeypatch)
    graph = target.compiled()
    below, above = number(-0.5).reshape(1), number(0.5).reshape(1)
    counts = []
    for z in (below, above):
        before = len(runs)
        value, gradient = graph(z)
        counts.append(len(runs) - before)
        own = target.eager_gradient(True, z)
        torch.testing.assert_close((value, gradient), own)
    assert sorted(counts) == [0, 1]


def test_a_way_that_cannot_be_recorded_runs_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(y: Tensor) -> None:
        x = pyro.sample("x", dist.Normal(number(0), number(1)))
        rate = number(float(x.detach()) ** 2) + x if x > 2 else x
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(rate, number(1)), obs=y)

    target = Target(Program(program), {"y": Y})
    for at in (0.5, 2.5, 3.0, 1.0):
        z = number(at).reshape(1)
        torch.testing.assert_close(target.value_and_grad(z), target.eager_gradient(True, z))


@pytest.mark.parametrize("engine", ["machine code", "torch"])
def test_nuts_draws_from_a_density_with_a_branch(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean and probability of x > 0 by quadrature."""
    if engine == "torch":
        monkeypatch.setattr(machine_code, "find_spec", lambda name: None)
    elif not LLVM:
        pytest.skip("llvmlite is not installed")
    y = number(0.4) + 0.2 * torch.randn(4, generator=torch.Generator().manual_seed(1)).double()
    how = inference.NUTS(draws=1500, chains=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ppgp.errors.NumericalWarning)
        posterior = ppgp.fit(kinked, {"y": y}, how, progress=False)
    x = posterior.draws["x"].double().numpy()

    def density(x: float) -> float:
        rate = 3 * x if x > 0 else x
        return float(stats.norm.pdf(x)) * math.exp(stats.norm.logpdf(y.numpy(), rate).sum())

    def integral(f: Any) -> float:
        return sum(integrate.quad(f, *ends)[0] for ends in ((-8, 0), (0, 8)))

    mass = integral(density)
    for function in (lambda x: x, lambda x: np.asarray(x > 0, float)):
        exact = integral(lambda v, f=function: float(f(v)) * density(v)) / mass
        found = function(x)
        error = ppgp.diagnostics.mcse(found, "mean")
        assert abs(found.mean() - exact) < 4 * error


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")  # so few draws
@pytest.mark.parametrize("how", [inference.SGLD(draws=100, warmup=100), inference.SVI(steps=200)])
def test_a_branch_on_rows_of_a_mini_batch(how: Any) -> None:
    """The scale depends on the mean of the rows of the batch."""

    def program(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(1)))
        with pyro.plate("rows", len(y), subsample_size=10) as chosen:
            part = y[chosen]
            scale = 1.0 if part.mean() > mu else 2.0
            pyro.sample("y", dist.Normal(mu, number(scale)), obs=part)

    y = torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = Target(Program(program), {"y": y}, subsample=True)
    graph = target.compiled(10)
    drawn = torch.Generator().manual_seed(5)
    for _ in range(20):
        z = torch.randn(1, generator=drawn, dtype=torch.float64)
        tables = target.draw_rows(drawn).tables
        torch.testing.assert_close(graph(z, *tables), target.eager_gradient(True, z, *tables))
    posterior = ppgp.fit(program, {"y": y}, how, progress=False)
    assert bool(posterior.draws["mu"].isfinite().all())


def test_conditions_after_random_numbers_are_not_recorded() -> None:
    def noisy(x: Tensor) -> list[Tensor]:
        return [x if torch.rand(()) > x.mean() else -x]

    with pytest.raises(RuntimeError, match="depends on the arguments"):
        recorded(noisy, (torch.zeros(2),), branches=True)


def test_a_condition_is_that_of_the_moment_at_which_it_was_asked() -> None:
    def function(x: Tensor) -> list[Tensor]:
        flag = x > 0
        result = x * 2 if flag else x * 3
        flag.logical_not_()
        return [result]

    graph = recorded(function, (number(1),), branches=True)
    assert graph.meta["branches"] == 1
    (above,), (below,) = graph(number(2)), graph(number(-2))
    assert float(above) == 4
    assert math.isnan(float(below))
    with pytest.raises(RuntimeError, match="depends on the arguments"):
        recorded(function, (number(1),))


@pytest.mark.parametrize("config", [{"jump": LatentStableReparam()}, {"jump": StableReparam()}])
def test_stable_laws_have_machine_code(config: dict[str, Any]) -> None:
    """Pyro looks whether the stability is near 1, and sets NaN to 0 where there are any."""
    if not LLVM:
        pytest.skip("llvmlite is not installed")
    observed = isinstance(config["jump"], StableReparam)

    def drift(y: Tensor) -> None:
        stability = pyro.sample("stability", dist.Uniform(number(0.8), number(2.0)))
        if observed:
            with pyro.plate("data", len(y)):
                pyro.sample("jump", dist.Stable(stability, number(0)), obs=y)
        else:
            jump = pyro.sample("jump", dist.Stable(stability, number(0)))
            with pyro.plate("data", len(y)):
                pyro.sample("y", dist.Normal(jump, number(1)), obs=y)

    program = pyro.poutine.reparam(drift, config=config)
    target = Target(Program(lambda y: program(y)), {"y": Y})
    called = target.callback(often=True)
    z = points_of(target, 60)
    z[:, 0] = torch.linspace(-3, 0, 60)  # stabilities on both sides of 1, and near it
    assert target._graphs._machine_code[True] is not None
    for point in z:
        value, gradient = target.eager_gradient(True, point)
        found = called(point.numpy())
        np.testing.assert_allclose(found[0], value.item(), rtol=1e-8)
        np.testing.assert_allclose(found[1], gradient.numpy(), rtol=1e-7, atol=1e-8)


# -- functions of many draws -----------------------------------------------------------------------


def test_draws_that_take_the_same_branches_go_through_vmap_together() -> None:
    runs: list[int] = []

    def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
        runs.append(1)
        x, v = values["x"], values["v"] * 1
        v[v > 1] = 1
        if x > 1:
            return {"y": x + v}
        return {"y": -x * v if x.sum() > 0 else x * 0 + v}

    x = torch.randn(1200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    v = torch.randn(1200, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = over_draws(one, {"x": x, "v": v})["y"]
    top = v.clamp_max(1)
    middle = torch.where(x[:, None] > 0, -x[:, None] * top, top)
    assert torch.equal(found, torch.where(x[:, None] > 1, x[:, None] + top, middle))
    assert len(runs) == 3 * 5  # three chunks, and two conditions that differ in each


def test_draws_that_all_take_other_branches_go_in_a_loop() -> None:
    runs: list[int] = []

    def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
        runs.append(1)
        return {"y": torch.stack([v if v > 0 else v * v for v in values["x"]]).sum()}

    x = torch.randn(300, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = over_draws(one, {"x": x})["y"]
    torch.testing.assert_close(found, torch.where(x > 0, x, x * x).sum(1))
    assert len(runs) < 300 + 40


def test_a_site_of_one_branch() -> None:
    """Its value is NaN where the branch is not taken, and a site to predict is refused."""

    def program(n: int, y: Tensor | None = None) -> None:
        x = pyro.sample("x", dist.Normal(number(0), number(1)))
        if x > -5:
            pyro.deterministic("twice", 2 * x)
        if x > 0:
            pyro.deterministic("thrice", 3 * x)
        with pyro.plate("rows", n):
            pyro.sample("y" if y is not None or x > 0 else "other", dist.Normal(x, 1.0), obs=y)

    data = {"n": 7, "y": Y}
    posterior = ppgp.fit(program, data, inference.Laplace(draws=40), progress=False)
    x = posterior.theta["x"]
    assert 0 < int((x > 0).sum()) < 40
    torch.testing.assert_close(posterior.theta["twice"], 2 * x)
    thrice = posterior.theta.get("thrice")
    if thrice is not None:  # known where the first run reached it
        assert torch.equal(thrice.isnan(), x <= 0)
    with pytest.raises(NotApplicable, match=r"at some of them, as in a branch"):
        posterior.predict(n=3)


@pytest.mark.parametrize("source", ["torch", "generator", "NumPy", "Python"])
def test_a_condition_on_random_numbers_keeps_their_distribution(source: str) -> None:
    """To draw again where a condition differs, and not where it agrees, would change the share."""
    p, rounds = 0.8, 1500
    own = torch.Generator().manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 # as users' programs draw
    random.seed(0)
    uniform = {
        "torch": lambda: torch.rand(()),
        "generator": lambda: torch.rand((), generator=own),
        "NumPy": lambda: np.random.rand(),  # noqa: NPY002
        "Python": lambda: random.random(),
    }[source]

    def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
        drawn = values["p"] > uniform()
        return {"y": torch.tensor(1.0) if drawn else torch.tensor(0.0)}

    with handlers.seeded(0):
        found = [over_draws(one, {"p": torch.full((2,), p)})["y"] for _ in range(rounds)]
    count = int(torch.stack(found).sum())
    assert stats.binomtest(count, 2 * rounds, p).pvalue > 1e-4


def test_a_condition_inside_a_vmap_of_the_program_runs_in_a_loop() -> None:
    def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
        doubled = torch.vmap(lambda u: u * 2)(values["x"])
        return {"y": doubled if doubled.sum() > 0 else -doubled}

    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    expected = 2 * x * torch.where(x.sum(1) > 0, 1.0, -1.0)[:, None]
    torch.testing.assert_close(over_draws(one, {"x": x})["y"], expected)
    with Batched():  # outside of vmap torch itself answers
        assert bool(torch.tensor(True))


def test_predictions_of_a_program_with_a_branch_are_those_of_each_draw() -> None:
    def program(x: Tensor, y: Tensor | None = None) -> None:
        slope = pyro.sample("slope", dist.Normal(number(0), number(1)))
        mean = pyro.deterministic("mean", slope * x if slope > 0 else -2 * slope * x)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(mean, number(1)), obs=y)

    x = torch.linspace(0, 1, 5, dtype=torch.float64)
    posterior = ppgp.fit(
        program, {"x": x, "y": x * 0.3}, inference.NUTS(draws=300, chains=2), progress=False
    )
    slope = posterior.theta["slope"]
    expected = torch.where(slope > 0, slope, -2 * slope)[..., None] * x
    torch.testing.assert_close(posterior.theta["mean"], expected)
    predicted = posterior.predict(x=2 * x)
    torch.testing.assert_close(predicted.mean, 2 * expected.mean(0), rtol=1e-6, atol=1e-8)
