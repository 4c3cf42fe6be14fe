"""A scan whose steps have sites is the program whose loop is written in Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import pyro
import pyro.distributions as dist
import pytest
import torch
from loops_of_steps import Scan, scanned, unrolled
from pyro import poutine
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.infer.reparam import LocScaleReparam
from pyro.optim.pytorch_optimizers import Adam
from pyro.poutine.util import site_is_subsample
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.density.graph import scanning
from ppgp.density.graph.tracing import one_point
from ppgp.density.handlers import Run, quietly
from ppgp.errors import DataError, NotApplicable
from ppgp.models.program import Program

F64 = torch.float64
STEPS = 12
ZERO = torch.tensor(0.0, dtype=F64)
SERIES = torch.linspace(-1, 2, STEPS, dtype=F64).sin()
TABLE = torch.linspace(-2, 2, STEPS * 6, dtype=F64).cos().reshape(STEPS, 2, 3)
handlers: Any = poutine  # its handlers have no types


def positive(name: str) -> Tensor:
    return pyro.sample(name, dist.HalfNormal(torch.tensor(0.5, dtype=F64)))


def volatility(scan: Scan) -> None:
    """Stochastic volatility."""
    phi, s = pyro.sample("phi", dist.Beta(20 + ZERO, 2.0)), positive("s")

    def step(at: Any, h: Tensor, x: Tensor) -> tuple[Tensor, None]:
        h = pyro.sample(at("h"), dist.Normal(phi * h, s))
        pyro.sample(at("y"), dist.StudentT(5.0, 0.0, (h / 2).exp()), obs=x)
        pyro.deterministic(at("vol"), (h / 2).exp())
        return h, None

    scan(step, ZERO, SERIES)


def holt_winters(scan: Scan) -> None:
    a, b, s = (positive(name) for name in "abs")

    def step(at: Any, carry: Any, x: Tensor) -> tuple[Any, Tensor]:
        level, trend = carry
        mean = level + trend
        y = pyro.sample(at("y"), dist.Normal(mean, s), obs=x)
        new = mean + a * (y - mean)
        pyro.factor(at("small"), -0.01 * new.square())
        return (new, trend + b * (new - level - trend)), mean

    scan(step, (SERIES[0], SERIES[1] - SERIES[0]), SERIES)


def autoregressive(scan: Scan) -> None:
    """A process of order 2, whose steps observe the next value, from the last step back."""
    phi, s = (
        pyro.sample("phi", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1)),
        positive("s"),
    )

    def step(at: Any, past: Any, x: Tensor) -> tuple[Any, None]:
        mean = phi[0] * past[0] + phi[1] * past[1]
        return (pyro.sample(at("y"), dist.Normal(mean, s), obs=x), past[0]), None

    scan(step, (ZERO, ZERO), SERIES, reverse=True)


def plates(scan: Scan) -> None:
    """A plate around the loop, one inside, a mask, a scale and a positive latent site."""
    s = positive("s")
    with pyro.plate("series", 3):
        phi = pyro.sample("phi", dist.Normal(ZERO, 1.0))

        def step(at: Any, level: Tensor, x: Tensor) -> tuple[Tensor, None]:
            level = pyro.sample(at("e"), dist.LogNormal(phi * level.tanh(), 1.0))
            with pyro.plate(at("rep"), 2, dim=-2), handlers.mask(mask=x > -0.5):
                pyro.sample(at("y"), dist.Normal(level, s), obs=x)
            with handlers.scale(scale=0.5):
                pyro.sample(at("mean"), dist.Normal(level, s), obs=x.mean(0))
            return level, None

        scan(step, torch.zeros(3, dtype=F64), TABLE)


def without_data(scan: Scan) -> None:
    s = positive("s")

    def step(at: Any, level: Tensor, x: None) -> tuple[Tensor, Tensor]:
        move = dist.Normal(torch.zeros(2, dtype=F64), s).to_event(1)
        level = level + pyro.sample(at("e"), move)
        return level, level

    _, path = scan(step, torch.zeros(2, dtype=F64), None, length=STEPS)
    with pyro.plate("rows", STEPS):
        pyro.sample("y", dist.Normal(path.sum(-1), 1.0), obs=SERIES)


def guarded(scan: Scan) -> None:
    """Probabilities that may leave [0, 1], where the density is 0."""
    slope = positive("s")

    def step(at: Any, p: Tensor, x: Tensor) -> tuple[Tensor, None]:
        p = p + 0.05 * slope
        pyro.sample(at("y"), dist.Bernoulli(probs=p), obs=(x > 0).to(F64))
        return p, None

    scan(step, ZERO + 0.1, SERIES)


def decentred(scan: Scan) -> None:
    s = positive("s")

    def step(at: Any, level: Tensor, x: Tensor) -> tuple[Tensor, None]:
        with handlers.reparam(config={at("h"): LocScaleReparam(0.0)}):
            level = pyro.sample(at("h"), dist.Normal(0.9 * level, s))
        pyro.sample(at("y"), dist.Normal(level, 1.0), obs=x)
        return level, None

    scan(step, ZERO, SERIES)


def missing(scan: Scan) -> None:
    """A mask leaves NaN out."""
    s = positive("s")

    def step(at: Any, level: Tensor, x: Tensor) -> tuple[Tensor, None]:
        level = pyro.sample(at("level"), dist.Normal(level, s))
        with handlers.mask(mask=~x.isnan()):
            pyro.sample(at("y"), dist.Normal(level, s), obs=x)
        return level, None

    scan(step, ZERO, torch.where(SERIES > 0.9, torch.nan, SERIES))


PROGRAMS = [
    missing,
    volatility,
    holt_winters,
    autoregressive,
    plates,
    without_data,
    guarded,
    decentred,
]
every = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)


def target_of(program: Callable[[Scan], None], scan: Scan = scanned) -> Target:
    return Target(Program(lambda: program(scan)), {})


def points(target: Target, k: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.4 * torch.randn(k, target.dim, generator=generator, dtype=F64)


def place(name: str, slices: Any) -> slice:
    """Return where a site of the unrolled program is in z of the scanned one."""
    if name in slices:
        return slice(slices[name].start, slices[name].stop)
    base, _, t = name.replace("_decentered", "").rpartition("_")
    base += "_decentered" * ("_decentered" in name)
    start, width = slices[base].start, (slices[base].stop - slices[base].start) // STEPS
    return slice(start + int(t) * width, start + (int(t) + 1) * width)


@every
@pytest.mark.parametrize("few", [2, 30])
def test_density_and_gradient_are_those_of_the_unrolled_program(
    program: Callable[[Scan], None], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "FEW", few)  # from so many steps on they run at once
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        target, loop = target_of(program), target_of(program, unrolled)
        target.compiled()
    assert not target.eager
    z = points(target)
    several = target.value_and_grad_batch(z)
    for i, point in enumerate(z):
        there = torch.cat([point[place(name, target.slices)] for name in loop.slices])
        value, slopes = loop.value_and_grad(there, compile=False)
        own = torch.zeros_like(slopes)
        for name, s in loop.slices.items():
            own[place(name, target.slices)] = slopes[s.start : s.stop]
        batched = (several[0][i], several[1][i])
        in_turn = target.gradient_step_by_step(True, point)
        own_runs = (target.eager_gradient(True, point), in_turn)
        for found in (target.value_and_grad(point), batched, *own_runs):
            # rounding errors of some hundred operations
            torch.testing.assert_close(found[0], value, rtol=1e-12, atol=1e-12, equal_nan=True)
            torch.testing.assert_close(found[1], own, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("few", [2, 30])
def test_second_derivatives(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "FEW", few)
    target, loop = target_of(holt_winters), target_of(holt_winters, unrolled)
    z = points(target)[0]
    torch.testing.assert_close(target.hessian(z), loop.hessian(z), rtol=1e-10, atol=1e-10)


def test_a_step_runs_as_often_whatever_the_number_of_steps() -> None:
    def calls(steps: int) -> int:
        count = 0

        def program() -> None:
            def step(level: Tensor, x: Tensor) -> tuple[Tensor, None]:
                nonlocal count
                count += 1
                return pyro.sample("h", dist.Normal(level, 1.0)), None

            ppgp.scan(step, ZERO, None, length=steps)
            pyro.sample("y", dist.Normal(pyro.sample("m", dist.Normal(ZERO, 1.0)), 1.0), obs=ZERO)

        target = Target(Program(program), {})
        z = target.origin()
        count = 0
        one_point(lambda z: target.eager_gradient(True, z), (z,))
        return count

    assert calls(5) == calls(50) <= 3


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p is not missing], ids=lambda f: f.__name__
)
def test_plain_pyro_runs_it(program: Callable[[Scan], None]) -> None:
    pyro.set_rng_seed(0)
    trace = handlers.trace(lambda: program(scanned)).get_trace()
    pyro.set_rng_seed(0)
    other = handlers.trace(lambda: program(unrolled)).get_trace()
    total, wanted = trace.log_prob_sum(), other.log_prob_sum()
    torch.testing.assert_close(total, wanted, rtol=1e-12, atol=1e-12)
    for name, site in cast(Any, trace.nodes).items():
        if f"{name}_0" not in other.nodes or site_is_subsample(site):
            continue
        steps = [other.nodes[f"{name}_{t}"]["value"] for t in range(STEPS)]
        assert torch.equal(site["value"].reshape(STEPS, -1), torch.stack(steps).reshape(STEPS, -1))


def test_guides_and_predictions_of_pyro() -> None:
    def program() -> None:
        volatility(scanned)

    pyro.set_rng_seed(0)
    with pyro.get_param_store().scope():
        guide = AutoNormal(program)
        svi = SVI(program, guide, Adam({"lr": 0.01}), Trace_ELBO())
        losses = [cast(float, svi.step()) for _ in range(3)]
        assert all(loss == loss for loss in losses)
        draws = Predictive(program, guide=guide, num_samples=4)()
    assert draws["h"].shape == draws["y"].shape == (4, STEPS)
    # Pyro gives sites without plates an axis of length 1
    torch.testing.assert_close(draws["vol"][:, 0], (draws["h"] / 2).exp())


def test_a_reparametrisation_around_the_loop() -> None:
    def program(scan: Scan) -> None:
        def step(at: Any, level: Tensor, x: Tensor) -> tuple[Tensor, None]:
            level = pyro.sample(at("h"), dist.Normal(0.9 * level, 0.5))
            pyro.sample(at("y"), dist.Normal(level, 1.0), obs=x)
            return level, None

        scan(step, ZERO, SERIES)

    names = ["h", *(f"h_{t}" for t in range(STEPS))]
    config = {name: LocScaleReparam(0.0) for name in names}

    def changed(scan: Scan) -> None:
        with handlers.reparam(config=config):
            program(scan)

    target, loop = target_of(changed), target_of(changed, unrolled)
    assert list(target.slices) == ["h_decentered"]
    z = points(target)[0]
    pairs = zip(target.value_and_grad(z), loop.value_and_grad(z, compile=False), strict=True)
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def kalman_of(y: Tensor, q: float, r: float) -> tuple[Tensor, Tensor]:
    """Return means and variances of a random walk given noisy values, from its joint normal."""
    t = torch.arange(1.0, len(y) + 1, dtype=F64)
    prior = q * torch.minimum(t[:, None], t[None, :])
    gain = prior @ torch.linalg.inv(prior + r * torch.eye(len(y), dtype=F64))
    return gain @ y, (prior - gain @ prior).diagonal()


def walk(y: Tensor | None = None, steps: int = STEPS) -> None:
    def step(level: Tensor, x: Tensor | None) -> tuple[Tensor, None]:
        level = pyro.sample("level", dist.Normal(level, 0.5))
        pyro.sample("y", dist.Normal(level, 0.7), obs=x)
        return level, None

    ppgp.scan(step, ZERO, y, length=steps)


def test_a_random_walk_has_its_smoothed_law() -> None:
    mean, variance = kalman_of(SERIES, 0.25, 0.49)
    how = ppgp.inference.NUTS(draws=1000, warmup=300, chains=2)
    posterior = ppgp.fit(walk, {"y": SERIES}, how, progress=False)
    draws = posterior.draws["level"]
    assert draws.shape == (2, 1000, STEPS)
    error = (variance / 300).sqrt()  # of at least 300 effective draws
    assert bool(((draws.mean((0, 1)) - mean).abs() < 5 * error).all())
    laplace = ppgp.fit(walk, {"y": SERIES}, ppgp.inference.Laplace(), progress=False)
    found = laplace.draws["level"].flatten(0, 1)
    # the posterior is normal, so that Laplace's approximation is exact but for its 1,000 draws
    assert bool(((found.mean(0) - mean).abs() < 5 * (variance / len(found)).sqrt()).all())
    assert bool(((found.var(0) / variance - 1).abs() < 5 * (2 / len(found)) ** 0.5).all())


def test_what_comes_after_a_fit() -> None:
    posterior = ppgp.fit(walk, {"y": SERIES}, ppgp.inference.Laplace(), progress=False)
    likelihood = posterior.log_likelihood()
    wanted = dist.Normal(posterior.draws["level"], 0.7).log_prob(SERIES)
    torch.testing.assert_close(likelihood, wanted)
    assert posterior.predict(y=None).mean.shape == (STEPS,)
    assert ppgp.psis_loo(posterior).pointwise.shape == (STEPS,)
    exported = posterior.to_arviz(prior=20)
    assert exported["posterior"]["level"].shape == (1, 1000, STEPS)
    assert exported["prior_predictive"]["y"].shape == (1, 20, STEPS)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_guides_of_pyro_fit_sites_in_other_numbers_of_plates() -> None:
    """A random walk that two instruments measure, each with errors of its own in every step."""
    y = torch.stack([SERIES + 0.2, SERIES - 0.1], -1)

    def program(y: Tensor | None = None) -> None:
        def step(level: Tensor, row: Tensor | None) -> tuple[Tensor, None]:
            level = pyro.sample("level", dist.Normal(level, 0.5))
            with pyro.plate("instruments", 2):
                e = pyro.sample("e", dist.Normal(level, 0.3))
                pyro.sample("y", dist.Normal(e, 0.4), obs=row)
            return level, None

        ppgp.scan(step, ZERO, y, length=STEPS)

    # the mean of both measures the level with variance (0.09 + 0.16) / 2
    mean, _ = kalman_of(y.mean(-1), 0.25, 0.125)
    how = ppgp.inference.SVI(AutoNormal, steps=800, learning_rate=0.03, draws=500)
    posterior: Any = ppgp.fit(program, {"y": y}, how, progress=False)
    # independent normals have the mean of a normal posterior; the last iterate is near it
    assert bool(((posterior.draws["level"].mean((0, 1)) - mean).abs() < 0.15).all())
    names = posterior.to_arviz()["posterior"]["e"].dims
    assert names == ("chain", "draw", "steps_of_level", "instruments")
    draws = {name: value[0] for name, value in posterior.draws.items()}
    again = Predictive(program, draws)()
    assert again["y"].shape == (500, STEPS, 2)


def run(program: Callable[[], Any]) -> None:
    with quietly(), Run({}):
        program()


def sampled(name: str, law: Any = None) -> Callable[..., Any]:
    return lambda c, x: (c, pyro.sample(name, law or dist.Normal(c, 1.0)))


def twice(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return carry, pyro.sample("a", dist.Normal(0.0, 1.0)) + pyro.sample("a", dist.Normal(0.0, 1.0))


def only_at_first(carry: Tensor, x: Tensor) -> tuple[Tensor, None]:
    if x == 0:
        pyro.sample("a", dist.Normal(0.0, 1.0))
    return carry, None


def half_observed(carry: Tensor, x: Tensor) -> tuple[Tensor, None]:
    pyro.sample("a", dist.Normal(0.0, 1.0), obs=x if x == 0 else None)
    return carry, None


def moving_support(carry: Tensor, x: Tensor) -> tuple[Tensor, None]:
    return pyro.sample("a", dist.Uniform(carry, carry + 1)), None


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    ("step", "options", "message"),
    [
        (twice, {}, "a name of its own .* got two 'a'"),
        (only_at_first, {}, "the same sites in every step .* got 'a' in some steps"),
        (half_observed, {}, "got one at 'a' that some steps observe"),
        (moving_support, {}, "one support for all steps, got 'a'"),
        (sampled("a"), {"length": 4}, "got length=4 and xs of length 3: leave length out"),
        (sampled("a"), {"xs": None}, "got None: pass length=steps"),
        (sampled("a"), {"xs": None, "length": 0}, "at least one step"),
        (sampled("a"), {"xs": None, "length": 2.0}, "a whole number as length"),
        (sampled("a", dist.Normal), {}, "a distribution at 'a'"),
    ],
)
def test_mistakes(step: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, NotApplicable), match=message):
        run(lambda: ppgp.scan(step, ZERO, **{"xs": torch.arange(3.0), **options}))


def test_a_value_of_another_length_is_refused() -> None:
    conditioned = handlers.condition(lambda: walk(), data={"level": torch.zeros(5)})
    with pytest.raises(DataError, match=f"a value of 'level' for {STEPS} steps"):
        conditioned()


def test_a_loop_with_discrete_sites_inside_a_loop_is_refused() -> None:
    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(ZERO, 1.0))

        def inner(z: Tensor, x: Tensor) -> tuple[Tensor, None]:
            z = pyro.sample("z", dist.Bernoulli(0.2 + 0.5 * z))
            pyro.sample("y", dist.Normal(m + z, 1.0), obs=x)
            return z, None

        ppgp.scan(lambda z, x: (ppgp.scan(inner, z, x)[0], None), ZERO, y)

    with pytest.raises(NotApplicable, match="got 'z' in the inner one: write the inner loop in"):
        Target(Program(program), {"y": SERIES.reshape(3, 4)})


def test_a_scan_over_the_data_alone_predicts_data_of_their_size() -> None:
    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(ZERO, 1.0))

        def step(total: Tensor, y: Tensor) -> tuple[Tensor, None]:
            pyro.sample("y", dist.Normal(m + total, 0.1), obs=y)
            return total + 1, None

        ppgp.scan(step, ZERO, y)

    how = ppgp.inference.Laplace(draws=100)
    posterior: Any = ppgp.fit(program, {"y": SERIES}, how, progress=False)
    expected = posterior.draws["m"].mean() + torch.arange(STEPS, dtype=F64)
    torch.testing.assert_close(posterior.predict().mean, expected)


def longer(y: Tensor | None = None, steps: int = STEPS, x: Tensor | None = None) -> None:
    """A random walk, with an effect of x."""

    def step(level: Tensor, row: Any) -> tuple[Tensor, None]:
        y, x = row
        level = pyro.sample("level", dist.Normal(level, 0.5))
        shift = 0.0 if x is None else x
        pyro.sample("y", dist.Normal(level + shift, 0.1), obs=y)
        return level, None

    none = y is None and x is None
    ppgp.scan(step, ZERO, (y, x), steps if none else None)


def test_more_steps_than_in_the_fit_are_a_forecast() -> None:
    """The steps of a series are no units, which could be drawn from their prior."""
    how = ppgp.inference.Laplace(draws=2000)
    posterior: Any = ppgp.fit(longer, {"y": SERIES}, how, progress=False)
    draws = posterior.draws["level"][0]
    found = posterior.predict(steps=STEPS + 3)
    assert found.mean.shape == (STEPS + 3,)
    torch.testing.assert_close(found.mean[:STEPS], draws.mean(0))
    ahead = torch.arange(1.0, 4.0, dtype=F64)
    variance = draws[:, -1].var() + 0.25 * ahead + 0.01
    error = (variance / len(draws)).sqrt()
    assert bool(((found.mean[STEPS:] - draws[:, -1].mean()).abs() < 5 * error).all())
    # the variance of 2,000 draws has a relative error of sqrt(2 / 2,000)
    assert bool(((found.variance[STEPS:] / variance - 1).abs() < 5 * 1e-3**0.5).all())
    new = posterior.predict(steps=STEPS + 3, local="new").variance[-1]
    assert abs(float(new) / (0.25 * (STEPS + 3) + 0.01) - 1) < 5 * 1e-3**0.5
    with pytest.raises(DataError, match=f"as many steps of ppgp.scan as in the fit, {STEPS}, got"):
        posterior.predict(steps=STEPS - 1)


def test_a_forecast_begins_with_the_rows_of_the_fit() -> None:
    x = torch.linspace(0, 1, STEPS + 2, dtype=F64)
    how = ppgp.inference.Laplace(draws=50)
    posterior: Any = ppgp.fit(longer, {"y": SERIES, "x": x[:STEPS]}, how, progress=False)
    assert posterior.predict(x=x).mean.shape == (STEPS + 2,)
    with pytest.raises(DataError, match="other first rows of the argument 'x'"):
        posterior.predict(x=1 + x)
    assert posterior.predict(x=1 + x, local="new").mean.shape == (STEPS + 2,)


def test_a_forecast_goes_on_from_the_data() -> None:
    """The carry of an autoregression is the data, and then what was drawn."""

    def program(y: Tensor | None = None, steps: int = STEPS) -> None:
        a = pyro.sample("a", dist.Beta(50.0 + ZERO, 5.0))

        def step(last: Tensor, y: Tensor | None) -> tuple[Tensor, None]:
            last = pyro.sample("y", dist.Normal(a * last, 0.1), obs=y)
            return last, None

        ppgp.scan(step, ZERO, y, None if y is not None else steps)

    how = ppgp.inference.Laplace(draws=2000)
    posterior: Any = ppgp.fit(program, {"y": SERIES}, how, progress=False)
    a = posterior.draws["a"][0]
    found = posterior.predict(steps=STEPS + 2)
    torch.testing.assert_close(found.mean[1 : STEPS + 1], a.mean() * SERIES)
    second = a.square().mean() * SERIES[-1]
    error = (found.variance[-1] / len(a)).sqrt()
    assert abs(found.mean[-1] - second) < 5 * error


def test_a_loop_from_the_end_has_no_forecast() -> None:
    def program(y: Tensor | None = None, steps: int = STEPS) -> None:
        def step(level: Tensor, y: Tensor | None) -> tuple[Tensor, None]:
            level = pyro.sample("level", dist.Normal(level, 0.5))
            pyro.sample("y", dist.Normal(level, 0.1), obs=y)
            return level, None

        ppgp.scan(step, ZERO, y, None if y is not None else steps, reverse=True)

    posterior = ppgp.fit(program, {"y": SERIES}, ppgp.inference.MAP(), progress=False)
    with pytest.raises(DataError, match="without reverse=True"):
        posterior.predict(steps=STEPS + 1)


@pytest.mark.parametrize("local", [None, "same"])
@pytest.mark.parametrize("seen", [None, torch.arange(STEPS) % 3 != 1], ids=["all", "some"])
def test_a_loop_of_data_from_the_end_has_no_forecast(seen: Any, local: Any) -> None:
    def program(y: Tensor | None = None, steps: int = STEPS) -> None:
        a = pyro.sample("a", dist.Normal(torch.ones((), dtype=F64), 0.1))

        def step(last: Tensor, row: Any) -> tuple[Tensor, None]:
            value, known = row
            y = pyro.sample("y", dist.Normal(a * last, 0.1), obs=value, obs_mask=known)
            return y, None

        known = seen if y is not None else None
        ppgp.scan(step, ZERO, (y, known), None if y is not None else steps, reverse=True)

    posterior = ppgp.fit(program, {"y": SERIES}, ppgp.inference.MAP(), progress=False)
    with pytest.raises(DataError, match=r"of a loop from the end.*local='new'"):
        posterior.predict(steps=STEPS + 1, local=local)
    # another series begins at 0, whatever the end of that of the fit
    found = posterior.predict(steps=STEPS + 1, local="new")
    assert abs(float(found.mean[-1])) < 1e-9
