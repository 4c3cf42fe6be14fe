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
from ppgp.errors import NotApplicable
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
