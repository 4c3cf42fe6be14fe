"""Sites of ppgp.scan with ``obs_mask``, whose missing numbers are latent, as in a Python loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.density.graph import scanning
from ppgp.errors import DataError, NotApplicable
from ppgp.models.program import Program

F64 = torch.float64
STEPS = 12
SERIES = torch.linspace(-1, 2, STEPS, dtype=F64).sin()
SOME = torch.arange(STEPS) % 3 != 1
Scan = Callable[..., None]


def scanned(step: Any, init: Any, xs: Any, reverse: bool = False) -> None:
    ppgp.scan(lambda c, x: step(lambda name: name, c, x), init, xs, reverse=reverse)


def unrolled(step: Any, init: Any, xs: Any, reverse: bool = False) -> None:
    steps = range(len(xs[0]))
    for t in pyro.markov(reversed(steps) if reverse else steps):
        init, _ = step(lambda name, t=t: f"{name}_{t}", init, tuple(x[t] for x in xs))


def one(like: Tensor, value: float = 1.0) -> Tensor:
    return torch.tensor(value, dtype=like.dtype)


def autoregression(scan: Scan, y: Tensor, here: Tensor) -> None:
    """The carry is the series, with its imputed numbers."""
    a = pyro.sample("a", dist.Normal(one(y), 0.5))
    s = pyro.sample("s", dist.LogNormal(one(y, 0.0), 0.5))

    def step(at: Any, last: Tensor, row: Any) -> tuple[Tensor, None]:
        seen, known = row
        y = pyro.sample(at("y"), dist.Normal(a * last, s), obs=seen, obs_mask=known)
        return y, None

    scan(step, one(y, 0.0), (y, here))


def observed_level(scan: Scan, y: Tensor, here: Tensor) -> None:
    """A random walk, from the end, of which a function is observed in every step."""
    s = pyro.sample("s", dist.LogNormal(one(y, 0.0), 0.5))

    def step(at: Any, level: Tensor, row: Any) -> tuple[Tensor, None]:
        seen, known = row
        level = pyro.sample(at("level"), dist.Normal(level, s))
        x = pyro.sample(at("x"), dist.LogNormal(level, 1.0), obs=seen.exp(), obs_mask=known)
        pyro.sample(at("w"), dist.Normal(x, s), obs=one(y, 0.7))
        return level, None

    scan(step, one(y, 0.0), (y, here), reverse=True)


def series_in_a_plate(scan: Scan, y: Tensor, here: Tensor) -> None:
    """Three series, each missing in steps of its own."""
    here = torch.stack([here, ~here, here.flip(0)], -1)
    series = torch.where(here, torch.stack([y.nan_to_num(0.4)] * 3, -1), torch.nan)
    a = pyro.sample("a", dist.Normal(one(y), 0.5))

    def step(at: Any, last: Tensor, row: Any) -> tuple[Tensor, None]:
        seen, known = row
        with pyro.plate(at("series"), 3):
            last = pyro.sample(at("y"), dist.StudentT(4.0, a * last, 1.0), obs=seen, obs_mask=known)
        return last, None

    scan(step, torch.zeros(3, dtype=y.dtype), (series, here))


def events(scan: Scan, y: Tensor, here: Tensor) -> None:
    """Two numbers on a simplex, present or missing together, in a plate around the loop."""
    with pyro.plate("two", 2):
        a = pyro.sample("a", dist.Normal(one(y), 0.5))

        def step(at: Any, last: Tensor, row: Any) -> tuple[Tensor, None]:
            seen, known = row
            part = torch.stack([seen.sigmoid(), 1 - seen.sigmoid()], -1)
            law = dist.Dirichlet((a * last[..., 0]).exp()[..., None] * torch.ones_like(last))
            here = torch.stack([known, ~known])
            x = pyro.sample(at("x"), law, obs=part.nan_to_num(0.5).expand(2, 2), obs_mask=here)
            return x, None

        scan(step, torch.full((2, 2), 0.5, dtype=y.dtype), (y, here))


def hidden(scan: Scan, y: Tensor, here: Tensor) -> None:
    """A hidden Markov model with an autoregressive emission."""
    stay = pyro.sample("stay", dist.Beta(3 * one(y), 2.0))

    def step(at: Any, carry: Any, row: Any) -> tuple[Any, None]:
        (z, last), (seen, known) = carry, row
        p = torch.where(z == 1, stay, 1 - stay)
        z = pyro.sample(at("z"), dist.Categorical(torch.stack([1 - p, p], -1)))
        y = pyro.sample(at("y"), dist.Normal(z + 0.5 * last, 1.0), obs=seen, obs_mask=known)
        return (z, y), None

    scan(step, (torch.tensor(0), one(y, 0.0)), (y, here))


def binary(scan: Scan, y: Tensor, here: Tensor) -> None:
    """A chain of 0 and 1, some of which are seen; the others are summed out."""
    a, b = (pyro.sample(name, dist.Beta(2 * one(y), 3.0)) for name in "ab")

    def step(at: Any, last: Tensor, row: Any) -> tuple[Tensor, None]:
        seen, known = row
        law = dist.Bernoulli(torch.where(last == 1, a, b))
        last = pyro.sample(at("x"), law, obs=seen, obs_mask=known)
        pyro.sample(at("w"), dist.Normal(last, 1.0), obs=one(y, 0.3))
        return last, None

    scan(step, one(y, 0.0), ((y > 0).to(y), here))


PROGRAMS = [autoregression, observed_level, series_in_a_plate, events, hidden, binary]
MASKS = {
    "all": SOME | True,
    "none": SOME & False,
    "some": SOME,
    "ends": torch.arange(STEPS) % (STEPS - 1) != 0,
}


def target_of(program: Any, scan: Scan, y: Tensor, here: Tensor) -> Target:
    return Target(Program(lambda y, here: program(scan, y, here)), {"y": y, "here": here})


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mask", list(MASKS))
def test_density_and_gradient_are_those_of_the_unrolled_loop(
    program: Any, mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "FEW", 2)  # the steps run at once
    here = MASKS[mask]
    y = torch.where(here, SERIES, torch.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        target, loop = (target_of(program, scan, y, here) for scan in (scanned, unrolled))
        target.compiled()
    assert not target.eager
    assert target.dim == loop.dim
    generator = torch.Generator().manual_seed(0)
    points = 0.3 * torch.randn(2, target.dim, generator=generator, dtype=F64)
    several = target.value_and_grad_batch(points)
    for i, z in enumerate(points):
        there = z
        if program is observed_level:  # the unrolled program has its sites step by step
            there = torch.cat([z[_place(name, target, here)] for name in loop.slices])
        value, slopes = loop.value_and_grad(there, compile=False)
        own = slopes
        if program is observed_level:
            own = torch.zeros_like(slopes)
            for name, s in loop.slices.items():
                own[_place(name, target, here)] = slopes[s.start : s.stop]
        assert bool(own.isfinite().all())
        batched = (several[0][i], several[1][i])
        runs = target.eager_gradient(True, z), target.gradient_step_by_step(True, z)
        for found in (target.value_and_grad(z), batched, *runs):
            # rounding errors of some hundred operations
            torch.testing.assert_close(found[0], value, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(found[1], own, rtol=1e-12, atol=1e-12)
    back = target.unconstrain(target.constrain(points))
    torch.testing.assert_close(back, points, rtol=1e-12, atol=1e-12)


def _place(name: str, target: Target, here: Tensor) -> slice:
    """Return where a site of a step of the unrolled random walk is in z of the scanned one."""
    if name == "s":
        return slice(target.slices["s"].start, target.slices["s"].stop)
    base, t, *rest = name.split("_")
    start = target.slices["_".join([base, *rest])].start
    if not rest:
        return slice(start + int(t), start + int(t) + 1)
    missing = ~here
    start += int(missing[: int(t)].sum())
    return slice(start, start + int(missing[int(t)]))


@pytest.mark.parametrize("program", [autoregression, observed_level], ids=lambda f: f.__name__)
def test_imputed_steps_in_float32(program: Any) -> None:
    y = torch.where(SOME, SERIES, torch.nan)
    target = target_of(program, scanned, y.float(), SOME)
    wide = target_of(program, scanned, y, SOME)
    assert target.survey.like.dtype == torch.float32
    assert not target.eager
    z = torch.linspace(-0.4, 0.4, target.dim)
    pairs = zip(target.value_and_grad(z), wide.value_and_grad(z.double()), strict=True)
    for found, expected in pairs:
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def test_the_missing_steps_alone_are_coordinates() -> None:
    y = torch.where(SOME, SERIES, torch.nan)
    target = target_of(autoregression, scanned, y, SOME)
    assert target.dim == 2 + int((~SOME).sum())
    z = torch.linspace(-1, 1, target.dim, dtype=F64)
    values = target.constrain(z)
    assert values["y_unobserved"].shape == (STEPS,)
    torch.testing.assert_close(values["y"][SOME], SERIES[SOME])
    torch.testing.assert_close(values["y"][~SOME], z[2:])


def test_a_mask_of_a_step_that_depends_on_latent_sites_is_refused() -> None:
    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(one(y), 1.0))

        def step(last: Tensor, x: Tensor) -> tuple[Tensor, None]:
            return pyro.sample("y", dist.Normal(last, 1.0), obs=x, obs_mask=x < m), None

        ppgp.scan(step, m, y)

    with pytest.raises(NotApplicable, match=r"an obs_mask that is the same .* got one of 'y'"):
        Target(Program(program), {"y": SERIES})


# -- what comes after a fit ------------------------------------------------------------------------

PHI = 0.9
MISSING = torch.where(SOME, SERIES, torch.nan)
MISSING[-1] = torch.nan  # so that a forecast goes on from an imputed number
SEEN = ~MISSING.isnan()


def known_process(y: Tensor | None = None, here: Any = None, steps: int = STEPS) -> None:
    """An autoregression with known parameters, whose missing numbers alone are latent."""

    def step(last: Tensor, row: Any) -> tuple[Tensor, None]:
        seen, known = row
        y = pyro.sample("y", dist.Normal(PHI * last, 0.5), obs=seen, obs_mask=known)
        return y, None

    ppgp.scan(step, torch.tensor(1.0, dtype=F64), (y, here), length=steps)


def joint_law(steps: int) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of the numbers of the process."""
    t = torch.arange(1.0, steps + 1, dtype=F64)
    root = torch.where(t[:, None] >= t, PHI ** (t[:, None] - t), 0.0)  # of its errors
    return PHI**t, 0.25 * root @ root.mT


def given_seen(steps: int) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of all numbers, some after the series, given those seen."""
    mean, covariance = joint_law(steps)
    here = torch.cat([SEEN, torch.zeros(steps - STEPS, dtype=torch.bool)])
    gain = covariance[:, here] @ torch.linalg.inv(covariance[here][:, here])
    errors = MISSING[SEEN] - mean[here]
    return mean + gain @ errors, covariance - gain @ covariance[here]


@pytest.fixture(scope="module")
def fitted() -> Any:
    data = {"y": MISSING, "here": SEEN}
    how = ppgp.inference.Laplace(draws=2000)
    return ppgp.fit(known_process, data, how, progress=False)


def test_missing_steps_have_their_law_given_the_others(fitted: Any) -> None:
    mean, covariance = given_seen(STEPS)
    variance = covariance.diagonal()[~SEEN]
    # the posterior is normal, so that Laplace's approximation is exact but for its 2,000 draws
    found = fitted.draws["y_unobserved"][0][:, ~SEEN]
    assert bool(((found.mean(0) - mean[~SEEN]).abs() < 5 * (variance / 2000).sqrt()).all())
    assert bool(((found.var(0) / variance - 1).abs() < 5 * 1e-3**0.5).all())
    torch.testing.assert_close(fitted.draws["y"][0][:, SEEN], MISSING[SEEN].expand(2000, -1))
    data = {"y": MISSING, "here": SEEN}
    mode = ppgp.fit(known_process, data, ppgp.inference.MAP(), progress=False)
    torch.testing.assert_close(mode.theta["y"][0], mean, rtol=1e-5, atol=1e-5)
    how = ppgp.inference.NUTS(draws=1000, warmup=300, chains=2)
    chains = ppgp.fit(known_process, data, how, progress=False).draws["y"][..., ~SEEN]
    # of at least 300 effective draws
    assert bool(((chains.mean((0, 1)) - mean[~SEEN]).abs() < 5 * (variance / 300).sqrt()).all())


@pytest.mark.parametrize("passed", ["steps", "mask", "data"])
def test_a_forecast_goes_on_from_imputed_numbers(fitted: Any, passed: str) -> None:
    later = 3
    mean, covariance = given_seen(STEPS + later)
    arguments: dict[str, Any] = {"steps": STEPS + later}
    if passed != "steps":
        arguments["here"] = torch.cat([SEEN, torch.zeros(later, dtype=torch.bool)])
    if passed == "data":
        arguments["y"] = torch.cat([MISSING, torch.full((later,), torch.nan, dtype=F64)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the values of y are those of the fit
        found = fitted.predict(**arguments)
    variance = covariance.diagonal()[STEPS:]
    assert found.mean.shape == (STEPS + later,)
    error = 5 * (variance / 2000).sqrt()
    assert bool(((found.mean[STEPS:] - mean[STEPS:]).abs() < error).all())
    assert bool(((found.variance[STEPS:] / variance - 1).abs() < 5 * 1e-3**0.5).all())
    # a step after one that is seen is certain but for its own error
    after = int(SEEN.nonzero()[0, 0]) + 1
    torch.testing.assert_close(found.mean[after], PHI * MISSING[after - 1])


def test_new_data_of_a_series_with_missing_steps_begin_anew(fitted: Any) -> None:
    mean, covariance = joint_law(STEPS)
    found = fitted.predict()
    # each step has 2,000 paths, which carry their own numbers
    variance = covariance.diagonal()
    assert bool(((found.mean - mean).abs() < 5 * (variance / 2000).sqrt()).all())
    assert bool(((found.variance / variance - 1).abs() < 5 * 1e-3**0.5).all())


def test_the_seen_steps_alone_are_data(fitted: Any) -> None:
    before = torch.cat([torch.ones(1, 2000, 1, dtype=F64), fitted.draws["y"][..., :-1]], -1)
    expected = dist.Normal(PHI * before, 0.5).log_prob(MISSING.nan_to_num())[..., SEEN]
    torch.testing.assert_close(fitted.log_likelihood(), expected)
    assert ppgp.psis_loo(fitted).pointwise.shape == (int(SEEN.sum()),)
    exported = fitted.to_arviz(prior=10)
    assert exported["posterior"]["y"].dims == exported["posterior"]["y_unobserved"].dims
    assert exported["log_likelihood"]["y_observed"].shape == (1, 2000, int(SEEN.sum()))
    prior = dist.Normal(PHI * before, 0.5).log_prob(fitted.draws["y"])[..., ~SEEN].sum(-1)
    found = torch.as_tensor(exported["log_prior"]["y_unobserved"].values)
    torch.testing.assert_close(found, prior)


def test_a_walk_whose_later_steps_do_not_see_the_imputed_numbers() -> None:
    """Numbers that nothing else depends on leave the law of the others as a mask does."""

    def walk(y: Tensor, here: Tensor, impute: bool = True) -> None:
        def step(level: Tensor, row: Any) -> tuple[Tensor, None]:
            seen, known = row
            level = pyro.sample("level", dist.Normal(level, 0.5))
            if impute:
                pyro.sample("y", dist.Normal(level, 0.7), obs=seen, obs_mask=known)
            else:
                with pyro.poutine.mask(mask=known):
                    pyro.sample("y", dist.Normal(level, 0.7), obs=seen)
            return level, None

        ppgp.scan(step, torch.tensor(0.0, dtype=F64), (y, here))

    data = {"y": MISSING, "here": SEEN}
    means, sds = [], []
    for impute in (True, False):
        how = ppgp.inference.Laplace(draws=4000)
        found = ppgp.fit(walk, {**data, "impute": impute}, how, progress=False).draws["level"][0]
        means.append(found.mean(0))
        sds.append(found.std(0))
    assert bool(((means[0] - means[1]).abs() < 5 * sds[1] * (2 / 4000) ** 0.5).all())
    assert bool(((sds[0] / sds[1] - 1).abs() < 5 / 4000**0.5).all())


def test_a_discrete_series_goes_on_from_its_imputed_numbers() -> None:
    """A chain of 0 and 1, which repeats itself with probability q."""
    y = torch.tensor([1.0, 1, 0, 1, 1, 0], dtype=F64)
    here = torch.tensor([1, 1, 0, 1, 0, 0]).bool()

    def chain(y: Tensor | None = None, here: Any = None, steps: int = 6) -> None:
        q = pyro.sample("q", dist.Beta(80 + torch.zeros((), dtype=F64), 20.0))

        def step(last: Tensor, row: Any) -> tuple[Tensor, None]:
            seen, known = row
            law = dist.Bernoulli(torch.where(last == 1, q, 1 - q))
            return pyro.sample("y", law, obs=seen, obs_mask=known), None

        ppgp.scan(step, torch.zeros((), dtype=F64), (y, here), length=steps)

    data = {"y": torch.where(here, y, torch.nan), "here": here}
    posterior: Any = ppgp.fit(chain, data, ppgp.inference.Laplace(draws=1000), progress=False)
    q = posterior.draws["q"][0]
    between = q**2 / (q**2 + (1 - q) ** 2)  # of two steps that are 1
    found = posterior.discrete("y_unobserved").probabilities[0, :, 2, 1]
    torch.testing.assert_close(found, between)
    # the chain has been 1 in step 3, and 1, 2, ... steps later is so with these probabilities
    ahead = torch.stack([0.5 + 0.5 * (2 * q - 1) ** k for k in range(1, 6)]).mean(1)
    forecast = posterior.predict(steps=9).probabilities[:, 1]
    assert bool(((forecast[4:] - ahead).abs() < 5 * 0.5 / 1000**0.5).all())
    with pytest.raises(NotApplicable, match="that discrete sites in no plate connect"):
        posterior.log_likelihood()


def test_sequences_with_missing_steps_are_rows() -> None:
    """The density of a sequence sums over all paths of its hidden states."""
    steps, here = 4, torch.tensor([[1, 1], [0, 1], [1, 0], [1, 1]]).bool()
    y = torch.where(here, torch.linspace(-1, 1, 8, dtype=F64).reshape(4, 2), torch.nan)

    def program(y: Tensor, here: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 1.0))

        def step(z: Tensor, row: Any) -> tuple[Tensor, None]:
            seen, known = row
            z = pyro.sample("z", dist.Bernoulli(0.2 + 0.6 * z))
            pyro.sample("y", dist.Normal(m * z, 1.0), obs=seen, obs_mask=known)
            return z, None

        with pyro.plate("sequences", 2):
            ppgp.scan(step, torch.zeros(2, dtype=F64), (y, here))

    posterior: Any = ppgp.fit(
        program, {"y": y, "here": here}, ppgp.inference.Laplace(draws=5), progress=False
    )
    found = posterior.log_likelihood()[0]
    assert found.shape == (5, 2)
    draws = {name: value[0] for name, value in posterior.draws.items()}
    whole = torch.where(here, y, draws["y_unobserved"])  # [draw, step, sequence]
    torch.testing.assert_close(draws["y"], whole)
    seen, missing = [], []
    for path in range(2**steps):
        z = [path >> t & 1 for t in range(steps)]
        before = [0, *z[:-1]]
        p = torch.tensor([0.2 + 0.6 * b for b in before], dtype=F64)
        log_p = dist.Bernoulli(p).log_prob(torch.tensor(z, dtype=F64)).sum()
        mean = draws["m"][:, None, None] * torch.tensor(z, dtype=F64)[:, None]
        each = dist.Normal(mean, 1.0).log_prob(whole)
        seen.append(log_p + each.sum(1))
        missing.append(log_p + torch.where(here, 0.0, each).sum(1))
    expected = torch.logsumexp(torch.stack(seen), 0) - torch.logsumexp(torch.stack(missing), 0)
    torch.testing.assert_close(found, expected)


def test_a_forecast_with_the_mask_of_the_fit_is_sent_to_one_without() -> None:
    known = torch.tensor([True, False, True])
    y = torch.where(known, torch.ones(3, dtype=F64), torch.nan)

    def program(y: Any = None, known: Any = None, steps: int = 3) -> None:
        m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 1.0))

        def step(last: Tensor, row: Any) -> tuple[Tensor, None]:
            return pyro.sample("y", dist.Normal(m * last, 1.0), obs=row[0], obs_mask=row[1]), None

        ppgp.scan(step, torch.zeros((), dtype=F64), (y, known), length=steps)

    posterior: Any = ppgp.fit(
        program, {"y": y, "known": known}, ppgp.inference.MAP(), progress=False
    )
    for given in ({"known": known}, {"y": y}):
        with pytest.raises(
            DataError, match=r"length 3: .* for a forecast .* leave out the arguments"
        ):
            posterior.predict(steps=5, **given)
    assert len(posterior.predict(steps=5)) == 5
