"""Discrete sites in the steps of a scan are summed out, as in the loop written in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate
from pyro.ops.indexing import Vindex
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.density.assignments import most_probable, probabilities
from ppgp.density.graph import scanning
from ppgp.density.handlers import quietly
from ppgp.errors import NotApplicable
from ppgp.models.program import Program
from tests.enumerated_programs import Case, by_hand, by_pyro, centres, number, simplex

F64 = torch.float64
STEPS = 6
START = torch.tensor(0)
SERIES = 2 * torch.linspace(-1, 2, STEPS, dtype=F64).sin() + 1
TABLE = 2 * torch.linspace(-2, 2, STEPS * 6, dtype=F64).cos().reshape(STEPS, 2, 3)
handlers: Any = poutine  # its handlers have no types

Step = Callable[[Callable[[str], str], Any, Any], tuple[Any, Any]]
Scan = Callable[..., None]


def scanned(
    step: Step, init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> None:
    ppgp.scan(lambda c, x: step(lambda name: name, c, x), init, xs, length, reverse)


def unrolled(
    step: Step, init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> None:
    steps = range(length or len(xs))
    for t in pyro.markov(list(reversed(steps)) if reverse else steps):
        x = None if xs is None else xs[t]
        init, _ = step(lambda name, t=t: f"{name}_{t}", init, x)


def hidden_markov(scan: Scan) -> None:
    move, centre = simplex("move", 3, 3), centres(3)

    def step(at: Any, z: Tensor, y: Tensor) -> tuple[Tensor, None]:
        z = pyro.sample(at("z"), dist.Categorical(move[z]))
        pyro.sample(at("y"), dist.Normal(centre[z], 0.7), obs=y)
        return z, None

    scan(step, START, SERIES)


def backwards(scan: Scan) -> None:
    """From the last step on, with coins, whose probabilities change with time."""
    p, gap = pyro.sample("p", dist.Beta(number(2), number(3))), centres(1)[0]

    def step(at: Any, z: Tensor, x: Any) -> tuple[Tensor, Tensor]:
        y, t = x
        z = pyro.sample(at("z"), dist.Bernoulli((p + z * t) / 2))
        pyro.sample(at("y"), dist.Normal(gap * z, 1.0), obs=y)
        return z, y

    times = torch.linspace(0, 1, STEPS, dtype=F64)
    unpacked: Any = (SERIES, times)
    if scan is unrolled:
        unpacked = list(zip(SERIES, times, strict=True))
    scan(step, number(0.0), unpacked, reverse=True)


def autoregressive(scan: Scan) -> None:
    """The carry has the last value beside the state."""
    move, centre = simplex("move", 2, 2), centres(2)
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2, dtype=F64), 0.5).to_event(1))

    def step(at: Any, carry: Any, y: Tensor) -> tuple[Any, None]:
        z, last = carry
        z = pyro.sample(at("z"), dist.Categorical(move[z]))
        pyro.sample(at("y"), dist.Normal(centre[z] + slope[z] * last, 0.7), obs=y)
        return (z, y), None

    scan(step, (START, SERIES[0]), SERIES)


def factorial(scan: Scan) -> None:
    """Two chains that meet in what is observed."""
    one, other = simplex("one", 2, 2), simplex("other", 3, 3)
    law: Any = dist.Normal(number(0), 1.0).expand([2, 3])
    effect = pyro.sample("effect", law.to_event(2))

    def step(at: Any, carry: Any, y: Tensor) -> tuple[Any, None]:
        w = pyro.sample(at("w"), dist.Categorical(one[carry["w"]]))
        x = pyro.sample(at("x"), dist.Categorical(other[carry["x"]]))
        pyro.sample(at("y"), dist.Normal(Vindex(effect)[w, x], 1.0), obs=y)
        return {"w": w, "x": x}, None

    scan(step, {"w": START, "x": START}, SERIES)


def two_chains(scan: Scan) -> None:
    """Chains that no site joins."""
    one, other, centre = simplex("one", 2, 2), simplex("other", 3, 3), centres(3)

    def step(at: Any, carry: Any, y: Tensor) -> tuple[Any, None]:
        w = pyro.sample(at("w"), dist.Categorical(one[carry[0]]))
        x = pyro.sample(at("x"), dist.Categorical(other[carry[1]]))
        pyro.sample(at("y"), dist.Normal(centre[w], 1.0), obs=y)
        pyro.sample(at("u"), dist.Normal(centre[x], 1.0), obs=y - 1)
        return (w, x), None

    scan(step, (START, START), SERIES)


def sequences(scan: Scan) -> None:
    """A plate around the loop, one inside, a mask, and a discrete site of the inner plate."""
    move, centre = simplex("move", 2, 2), centres(2)
    p = pyro.sample("p", dist.Beta(number(2), number(3)))
    with pyro.plate("series", 3, dim=-1):
        shift = pyro.sample("shift", dist.Normal(number(0), 1.0))

        def step(at: Any, z: Tensor, y: Tensor) -> tuple[Tensor, None]:
            z = pyro.sample(at("z"), dist.Categorical(move[z]))
            with pyro.plate(at("rep"), 2, dim=-2), handlers.mask(mask=~y.isnan()):
                far = pyro.sample(at("far"), dist.Bernoulli(p))
                pyro.sample(at("y"), dist.Normal(centre[z] + shift + 3 * far, 1.0), obs=y)
            return z, None

        scan(step, torch.zeros(3, dtype=torch.long), torch.where(TABLE > -1, TABLE, torch.nan))


def switching(scan: Scan) -> None:
    """A latent process whose noise depends on the state, with a factor and a scale."""
    move = simplex("move", 2, 2)
    noise = pyro.sample("noise", dist.LogNormal(torch.zeros(2, dtype=F64), 1.0).to_event(1))

    def step(at: Any, carry: Any, y: Tensor) -> tuple[Any, None]:
        z, x = carry
        z = pyro.sample(at("z"), dist.Categorical(move[z]))
        x = pyro.sample(at("x"), dist.Normal(0.9 * x, noise[z]))
        pyro.sample(at("y"), dist.Normal(x, 0.5), obs=y)
        pyro.factor(at("f"), -0.1 * z * x.square())
        pyro.deterministic(at("d"), noise[z] * x)
        return (z, x), None

    with handlers.scale(scale=0.5):
        scan(step, (START, number(0.0)), SERIES)


def regimes(scan: Scan) -> None:
    """A discrete site outside of the loop, on which all steps depend."""
    move, centre = simplex("move", 2, 2), centres(2)
    r = pyro.sample("r", dist.Categorical(torch.tensor([0.3, 0.7], dtype=F64)))

    def step(at: Any, z: Tensor, y: Tensor) -> tuple[Tensor, None]:
        z = pyro.sample(at("z"), dist.Categorical(Vindex(move)[(z + r) % 2]))
        pyro.sample(at("y"), dist.Normal(centre[z], 0.7 + r), obs=y)
        pyro.sample(at("u"), dist.Normal(r, 1.0), obs=y)
        return z, None

    scan(step, START, SERIES)


def mixture(scan: Scan) -> None:
    """A discrete site that no other step sees, and a carry without discrete sites."""
    p, centre = pyro.sample("p", dist.Beta(number(2), number(3))), centres(2)

    def step(at: Any, level: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = pyro.sample(at("z"), dist.Bernoulli(p)).long()
        pyro.sample(at("y"), dist.Normal(level + centre[z], 1.0), obs=y)
        return 0.5 * level + 0.5 * y, level

    scan(step, number(0.0), SERIES)


def vectors(scan: Scan) -> None:
    """The carry is a function of the state with an event, and differs from step to step."""
    move = simplex("move", 2, 2)
    W = pyro.sample("W", dist.Normal(torch.zeros(2, 3, dtype=F64), 1.0).to_event(2))

    def step(at: Any, mean: Tensor, y: Tensor) -> tuple[Tensor, None]:
        logits = torch.stack([mean.sum(-1), mean[..., 0]], -1) + move[0].log()
        z = pyro.sample(at("z"), dist.Categorical(logits=logits))
        mean = W[z] * y
        pyro.sample(at("y"), dist.Normal(mean, 1.0).to_event(1), obs=y.expand(3))
        return mean, None

    scan(step, torch.ones(3, dtype=F64), SERIES)


PROGRAMS = [
    *(hidden_markov, backwards, autoregressive, factorial, two_chains, sequences, switching),
    *(regimes, mixture, vectors),
]
every = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)


def target_of(program: Callable[[Scan], None], scan: Scan = scanned) -> Target:
    return Target(Program(lambda: program(scan)), {})


def place(name: str, slices: Any) -> slice:
    """Return where a site of the unrolled program is in z of the scanned one."""
    if name in slices:
        return slice(slices[name].start, slices[name].stop)
    base, _, t = name.rpartition("_")
    start, width = slices[base].start, (slices[base].stop - slices[base].start) // STEPS
    return slice(start + int(t) * width, start + (int(t) + 1) * width)


@every
@pytest.mark.parametrize("few", [2, 30])
def test_density_and_gradient_are_those_of_the_unrolled_program(
    program: Callable[[Scan], None], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "FEW", few)  # from so many steps on they run at once
    target, loop = target_of(program), target_of(program, unrolled)
    assert not target.eager
    z = 0.4 * torch.randn(2, target.dim, generator=torch.Generator().manual_seed(0), dtype=F64)
    several = target.value_and_grad_batch(z)
    for i, point in enumerate(z):
        there = torch.cat([point[place(name, target.slices)] for name in loop.slices])
        value, slopes = loop.value_and_grad(there, compile=False)
        own = torch.zeros_like(slopes)
        for name, s in loop.slices.items():
            own[place(name, target.slices)] = slopes[s.start : s.stop]
        batched = (several[0][i], several[1][i])
        for found in (target.value_and_grad(point), batched, target.eager_gradient(True, point)):
            torch.testing.assert_close(found[0], value, rtol=1e-11, atol=1e-11)
            torch.testing.assert_close(found[1], own, rtol=1e-10, atol=1e-10)


def in_steps(values: dict[str, Tensor], names: Any) -> dict[str, Tensor]:
    """Return the values of the unrolled program, given those of the scanned one."""
    found = {}
    for name in names:
        base, _, t = name.rpartition("_")
        found[name] = values[name] if name in values else values[base][int(t)]
    return found


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p is not switching], ids=lambda f: f.__name__
)
def test_density_is_that_of_pyro_and_the_sum_over_all_assignments(
    program: Callable[[Scan], None],
) -> None:
    target, loop = target_of(program), target_of(program, unrolled)
    z = 0.4 * torch.randn(target.dim, generator=torch.Generator().manual_seed(1), dtype=F64)
    case = Case(lambda: program(unrolled), {})
    values = in_steps({k: v.detach() for k, v in target.sites(z).items()}, loop.slices)
    free = {name: value.clone().requires_grad_() for name, value in values.items()}
    theirs = by_pyro(case, free)
    z = z.requires_grad_()
    found = target.log_density(z, jacobian=False)
    here = float(found.detach())
    assert here == pytest.approx(float(theirs.detach()), rel=1e-10, abs=1e-10)
    slope = torch.autograd.grad(found, z)[0]
    constrained = in_steps(target.sites(z), free)
    slopes = torch.autograd.grad(theirs, list(free.values()))
    expected = torch.autograd.grad(list(constrained.values()), z, list(slopes))[0]
    assert torch.allclose(slope, expected, rtol=1e-9, atol=1e-9)
    if program in (backwards, autoregressive, regimes, mixture):  # others have very many
        assert here == pytest.approx(float(by_hand(case, values)), rel=1e-10, abs=1e-10)


@every
def test_discrete_sites_given_the_data(program: Callable[[Scan], None]) -> None:
    """Their probabilities, and where they are most probable together, are those of the loop."""
    target, loop = target_of(program), target_of(program, unrolled)
    z = 0.4 * torch.randn(3, target.dim, generator=torch.Generator().manual_seed(2), dtype=F64)
    draws = [target.sites(point) for point in z]
    theta = {name: torch.stack([d[name].detach() for d in draws]) for name in draws[0]}
    each = [in_steps(d, loop.slices) for d in draws]
    of_loop = {name: torch.stack([d[name].detach() for d in each]) for name in each[0]}
    for make in (probabilities, most_probable):
        with quietly():
            found = target.model.of_discrete(theta, {}, make)
            wanted = loop.model.of_discrete(of_loop, {}, make)
        for name, value in found.items():
            if f"{name}_0" in wanted:
                steps = torch.stack([wanted[f"{name}_{t}"] for t in range(STEPS)], 1)
                torch.testing.assert_close(value, steps, rtol=1e-10, atol=1e-10)
            else:
                torch.testing.assert_close(value, wanted[name], rtol=1e-10, atol=1e-10)


def series(y: Tensor | None = None, steps: int = 24) -> None:
    """Two states that are far apart."""
    law: Any = dist.Beta(number(8), number(2)).expand([2])
    stay = pyro.sample("stay", law.to_event(1))
    centre = pyro.sample("centre", dist.Normal(torch.tensor([0.0, 4.0], dtype=F64), 1).to_event(1))

    def step(z: Tensor, y: Tensor | None) -> tuple[Tensor, None]:
        up = torch.where(z == 1, stay[1], 1 - stay[0])
        z = pyro.sample("z", dist.Categorical(torch.stack([1 - up, up], -1)))
        pyro.sample("y", dist.Normal(centre[z], 1.0), obs=y)
        return z, None

    ppgp.scan(step, START, y, None if y is not None else steps)


def test_a_fit_and_what_comes_after() -> None:
    path = (torch.arange(24) // 8) % 2
    noise = torch.randn(24, generator=torch.Generator().manual_seed(3), dtype=F64)
    posterior: Any = ppgp.fit(series, {"y": 4 * path + noise}, inference.Laplace(), progress=False)
    assert set(posterior.draws) == {"stay", "centre"}
    z = posterior.discrete("z")
    assert z.probabilities.shape == (1, 1000, 24, 2)
    # a point is misjudged with a probability of less than 2 %
    assert float((z.most_probable() == path).double().mean()) > 0.9
    draws = z.sample(seed=1).double().mean((0, 1))
    expected = z.probabilities[0, :, :, 1].mean(0)
    error = (expected * (1 - expected) / 1000).sqrt()
    assert bool(((draws - expected).abs() <= 4.5 * error + 1e-3).all())
    assert posterior.predict()["y"].mean.shape == (24,)
    with pytest.raises(NotApplicable, match="that discrete sites in no plate connect"):
        posterior.log_likelihood()


def test_a_forecast_of_the_states() -> None:
    """Steps after those of the fit start from the last state, and forget it."""
    path = (torch.arange(24) // 8) % 2
    posterior: Any = ppgp.fit(series, {"y": 4.0 * path.double()}, inference.MAP(), progress=False)
    stay = posterior.draws["stay"][0, 0]
    found = posterior.predict(steps=30)["z"].probabilities[:, 1]
    assert found.shape == (30,)
    expected, share = [], number(0.0)
    for _ in range(6):
        share = share * stay[1] + (1 - share) * (1 - stay[0])
        expected.append(share)
    assert bool((found[:24].round() == path).all())
    wanted = torch.stack(expected)
    error = (wanted * (1 - wanted) / 1000).sqrt()  # of 1,000 runs
    assert bool(((found[24:] - wanted).abs() < 5 * error).all())


def test_sequences_are_rows() -> None:
    """The density of a sequence in a plate around the loop is that of the sequence alone."""

    def program(y: Tensor) -> None:
        move, centre = simplex("move", 2, 2), centres(2)
        with pyro.plate("series", y.shape[1]):

            def step(z: Tensor, y: Tensor) -> tuple[Tensor, None]:
                z = pyro.sample("z", dist.Categorical(move[z]))
                pyro.sample("y", dist.Normal(centre[z], 1.0), obs=y)
                return z, None

            ppgp.scan(step, torch.zeros(y.shape[1], dtype=torch.long), y)

    y = TABLE.flatten(1)
    posterior: Any = ppgp.fit(program, {"y": y}, inference.MAP(starts=1), progress=False)
    found = posterior.log_likelihood()
    assert found.shape == (1, 1, 6)
    values = {name: value[0, 0] for name, value in posterior.draws.items()}
    for i in range(6):
        target = Target(Program(program), {"y": y[:, i : i + 1]})
        one = target.log_likelihood(target.unconstrain(values))[0]
        assert float(found[0, 0, i]) == pytest.approx(one, rel=1e-10)


def carries(of: Callable[[Any, Tensor], Any], init: Any) -> Callable[[], None]:
    """Return a program whose step returns a carry."""

    def program() -> None:
        move, centre = simplex("move", 2, 2), centres(2)

        def step(carry: Any, y: Tensor) -> tuple[Any, None]:
            z = pyro.sample("z", dist.Categorical(move[carry[0]]))
            pyro.sample("y", dist.Normal(centre[z] + carry[-1], 1.0), obs=y)
            return of(carry, z), None

        ppgp.scan(step, init, SERIES)

    return program


@pytest.mark.parametrize(
    "program",
    [
        carries(lambda carry, z: (z, carry[0]), (START, START)),
        carries(lambda carry, z: (z, carry[1] + z), (START, START)),
    ],
    ids=["second order", "count"],
)
def test_a_carry_that_reaches_further_back_is_refused(program: Callable[[], None]) -> None:
    with pytest.raises(NotApplicable, match="last step alone, got one that keeps 'z' for longer"):
        Target(Program(program), {})


def test_what_a_loop_returns_of_discrete_sites_is_not_known() -> None:
    def program(after: bool) -> None:
        move, centre = simplex("move", 2, 2), centres(2)

        def step(z: Tensor, y: Tensor) -> tuple[Tensor, Any]:
            new = pyro.sample("z", dist.Categorical(move[z]))
            pyro.sample("y", dist.Normal(centre[new], 1.0), obs=y)
            return new, (new, 1.0 * z, 2 * y, centre)

        last, (zs, before, doubled, centre_each) = ppgp.scan(step, START, SERIES)
        pyro.factor("both", -doubled.sum() - centre_each.sum())
        if after:
            pyro.sample("u", dist.Normal(0.1 * last + zs[0] + before[1], 1.0), obs=number(0.0))

    target = Target(Program(lambda: program(False)), {})
    assert bool(torch.isfinite(target.value_and_grad(target.origin())[1]).all())
    with pytest.raises(NotApplicable, match="into the step"):
        Target(Program(lambda: program(True)), {})


def test_an_enumeration_of_pyro_knows_no_loops() -> None:
    def program() -> None:
        hidden_markov(scanned)

    with pytest.raises(NotApplicable, match="'z' under an enumeration of Pyro"):
        TraceEnum_ELBO(max_plate_nesting=1).loss(config_enumerate(program), lambda: None)


def test_other_refusals() -> None:
    def in_markov() -> None:
        for _ in pyro.markov(range(1)):
            hidden_markov(scanned)

    def many() -> None:
        p = pyro.sample("p", dist.Beta(number(2), number(2)))

        def step(carry: Any, y: Tensor) -> tuple[Any, None]:
            zs = [pyro.sample(f"z{i}", dist.Bernoulli((p + z) / 2)) for i, z in enumerate(carry)]
            pyro.sample("y", dist.Normal(sum(zs), 1.0), obs=y)
            return zs, None

        ppgp.scan(step, [number(0.0)] * 13, SERIES[:2])

    def several_plates() -> None:
        p = pyro.sample("p", dist.Beta(number(2), number(2)))

        def step(carry: Any, y: Tensor) -> tuple[Any, None]:
            w = pyro.sample("w", dist.Bernoulli((p + carry[0]) / 2))
            with pyro.plate("rows", 3):
                z = pyro.sample("z", dist.Bernoulli((p + carry[1]) / 2))
                pyro.sample("y", dist.Normal(w + z, 1.0), obs=y)
            return (w, z), None

        ppgp.scan(step, (number(0.0), torch.zeros(3, dtype=F64)), TABLE[:, 0])

    def scaled() -> None:
        p = pyro.sample("p", dist.Beta(number(2), number(2)))

        def step(z: Tensor, x: Tensor) -> tuple[Tensor, None]:
            with handlers.scale(scale=x):
                z = pyro.sample("z", dist.Bernoulli((p + z) / 2))
                pyro.sample("y", dist.Normal(z, 1.0), obs=x)
            return z, None

        ppgp.scan(step, number(0.0), SERIES.abs() + 1)

    for program, message in (
        (in_markov, "outside of pyro.markov"),
        (many, "at most 4,096 joint states .* got 8,192, of 13 discrete sites"),
        (several_plates, "in the same plates, where data join them"),
        (scaled, "one scale"),
    ):
        with pytest.raises(NotApplicable, match=message):
            Target(Program(program), {})
