"""Sites of a scan inside a step of another: those of two loops in Python."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from loops_of_steps import Scan, scanned, unrolled
from pyro import poutine
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.density.graph import scanning
from ppgp.errors import DataError
from ppgp.models.program import Program

F64 = torch.float64
DAYS, HOURS = 5, 4
ZERO = torch.tensor(0.0, dtype=F64)
SERIES = torch.linspace(-1, 2, DAYS * HOURS, dtype=F64).sin().reshape(DAYS, HOURS)
HERE = torch.arange(DAYS * HOURS).reshape(DAYS, HOURS) % 3 != 1
handlers: Any = poutine  # its handlers have no types


def hours_of_days(scan: Scan) -> None:
    s = pyro.sample("s", dist.HalfNormal(1 + ZERO))

    def day(of_day: Any, level: Tensor, row: Tensor) -> tuple[Tensor, None]:
        level = pyro.sample(of_day("level"), dist.Normal(level, s))

        def hour(of_hour: Any, e: Tensor, y: Tensor) -> tuple[Tensor, None]:
            def at(name: str) -> str:
                return of_hour(of_day(name))

            e = pyro.sample(at("e"), dist.Normal(0.5 * e + level, 0.3))
            pyro.sample(at("y"), dist.Normal(e, s), obs=y)
            pyro.factor(at("small"), -0.01 * e.square())
            pyro.deterministic(at("square"), e.square())
            return e, None

        last, _ = scan(hour, level, row)
        return 0.5 * level + 0.1 * last, None

    scan(day, ZERO, SERIES)


def in_plates(scan: Scan) -> None:
    """Both loops from the end, in a plate, with a plate, a mask and a scale inside."""
    with pyro.plate("series", 3):

        def day(of_day: Any, level: Tensor, row: Tensor) -> tuple[Tensor, None]:
            def hour(of_hour: Any, e: Tensor, y: Tensor) -> tuple[Tensor, None]:
                def at(name: str) -> str:
                    return of_hour(of_day(name))

                e = pyro.sample(at("e"), dist.Exponential(1 + ZERO))
                with pyro.plate(at("two"), 2, dim=-2), handlers.mask(mask=y > -0.5):
                    u = pyro.sample(at("u"), dist.LogNormal(e + level, 0.5))
                pyro.sample(at("y"), dist.Normal(u.sum(0), 1.0), obs=y)
                return e, None

            with handlers.scale(scale=0.5):
                last, _ = scan(hour, level, row, reverse=True)
            return 0.5 * level + 0.1 * last, None

        scan(day, torch.zeros(3, dtype=F64), SERIES, reverse=True)


def imputed_hours(scan: Scan) -> None:
    """The numbers that are missing have an axis of days and one of hours."""
    a = pyro.sample("a", dist.Normal(1 + ZERO, 0.5))

    def day(of_day: Any, level: Tensor, rows: Any) -> tuple[Tensor, None]:
        def hour(of_hour: Any, last: Tensor, row: Any) -> tuple[Tensor, None]:
            y, here = row
            law = dist.Normal(a * last, 0.3)
            return pyro.sample(of_hour(of_day("y")), law, obs=y, obs_mask=here), None

        return scan(hour, level, rows)[0], None

    scan(day, ZERO, (torch.where(HERE, SERIES, torch.nan), HERE))


PROGRAMS = [hours_of_days, in_plates, imputed_hours]


def target_of(program: Any, scan: Scan) -> Target:
    return Target(Program(lambda: program(scan)), {})


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("few", [2, 30])
def test_density_and_gradient_are_those_of_two_loops_in_python(
    program: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "FEW", few)  # from so many steps on they run at once
    target, loops = target_of(program, scanned), target_of(program, unrolled)
    assert not target.eager
    assert target.dim == loops.dim
    order = [i for name in loops.slices for i in _place(name, target)]
    z = 0.3 * torch.randn(target.dim, generator=torch.Generator().manual_seed(0), dtype=F64)
    value, slopes = loops.value_and_grad(z[order], compile=False)
    own = torch.zeros_like(slopes)
    own[order] = slopes
    assert bool(own.isfinite().all())
    runs = target.eager_gradient(True, z), target.gradient_step_by_step(True, z)
    for found in (target.value_and_grad(z), *runs):
        # rounding errors of some hundred operations
        torch.testing.assert_close(found[0], value, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found[1], own, rtol=1e-12, atol=1e-12)


def _place(name: str, target: Target) -> list[int]:
    """Return where a site of two loops in Python is in z of the program of scans."""
    if name in target.slices:
        return list(range(target.slices[name].start, target.slices[name].stop))
    base, *steps = name.removesuffix("_unobserved").split("_")
    step = tuple(int(t) for t in steps)  # day and hour
    if name.endswith("_unobserved"):
        first = target.slices["y_unobserved"].start
        at = step[0] * HOURS + step[1]
        missing = (~HERE).reshape(-1)
        before = first + int(missing[:at].sum())
        return [before] if bool(missing[at]) else []
    s = target.slices[base]
    return torch.arange(s.start, s.stop).reshape(s.event)[step].reshape(-1).tolist()


@pytest.mark.parametrize("program", [hours_of_days, in_plates], ids=lambda f: f.__name__)
def test_plain_pyro_runs_loops_in_loops(program: Any) -> None:
    pyro.set_rng_seed(0)
    trace = handlers.trace(lambda: program(scanned)).get_trace()
    pyro.set_rng_seed(0)
    other = handlers.trace(lambda: program(unrolled)).get_trace()
    total, wanted = trace.log_prob_sum(), other.log_prob_sum()
    torch.testing.assert_close(total, wanted, rtol=1e-12, atol=1e-12)
    each = [
        torch.stack([other.nodes[f"e_{d}_{t}"]["value"] for t in range(HOURS)]) for d in range(DAYS)
    ]
    assert torch.equal(trace.nodes["e"]["value"].reshape(-1), torch.stack(each).reshape(-1))


def levels(y: Tensor | None = None, days: int = DAYS, hours: int = HOURS) -> None:
    """A random walk from day to day, and numbers around it in the hours of each."""

    def day(level: Tensor, row: Tensor | None) -> tuple[Tensor, None]:
        level = pyro.sample("level", dist.Normal(level, 0.5))

        def hour(none: Tensor, y: Tensor | None) -> tuple[Tensor, None]:
            pyro.sample("y", dist.Normal(level, 0.7), obs=y)
            return none, None

        return ppgp.scan(hour, level, row, length=hours)[0], None

    ppgp.scan(day, ZERO, y, length=days)


def test_what_comes_after_a_fit_of_loops_in_loops() -> None:
    how = ppgp.inference.Laplace(draws=2000)
    posterior: Any = ppgp.fit(levels, {"y": SERIES}, how, progress=False)
    draws = posterior.draws["level"][0]
    # the mean of the hours of a day is a number around its level
    t = torch.arange(1.0, DAYS + 1, dtype=F64)
    prior = 0.25 * torch.minimum(t[:, None], t)
    gain = prior @ torch.linalg.inv(prior + 0.49 / HOURS * torch.eye(DAYS, dtype=F64))
    variance = (prior - gain @ prior).diagonal()
    # the posterior is normal, so that Laplace's approximation is exact but for its 2,000 draws
    error = 5 * (variance / 2000).sqrt()
    assert bool(((draws.mean(0) - gain @ SERIES.mean(1)).abs() < error).all())
    assert bool(((draws.var(0) / variance - 1).abs() < 5 * 1e-3**0.5).all())
    likelihood = dist.Normal(draws[:, :, None], 0.7).log_prob(SERIES).flatten(1)
    torch.testing.assert_close(posterior.log_likelihood()[0], likelihood)
    assert ppgp.psis_loo(posterior).pointwise.shape == (DAYS * HOURS,)
    exported = posterior.to_arviz(prior=10)
    assert exported["prior_predictive"]["y"].shape == (1, 10, DAYS, HOURS)
    found = posterior.predict(days=DAYS + 2)
    expected = draws.mean(0).repeat_interleave(HOURS)
    torch.testing.assert_close(found.mean[: DAYS * HOURS], expected)
    ahead = draws[:, -1].var() + 0.25 * torch.arange(1, 3).repeat_interleave(HOURS) + 0.49
    # 2,000 runs draw the levels that are to come
    assert bool(((found.variance[DAYS * HOURS :] / ahead - 1).abs() < 5 * 1e-3**0.5).all())


def test_other_hours_than_in_the_fit_are_one_sentence() -> None:
    def program(y: Tensor | None = None, hours: int = HOURS) -> None:
        def hour(e: Tensor, y: Tensor | None) -> tuple[Tensor, None]:
            e = pyro.sample("e", dist.Normal(e, 1.0))
            pyro.sample("y", dist.Normal(e, 1.0), obs=y)
            return e, None

        def day(e: Tensor, row: Tensor | None) -> tuple[Tensor, None]:
            return ppgp.scan(hour, e, row, length=hours)[0], None

        ppgp.scan(day, ZERO, y, length=DAYS)

    posterior = ppgp.fit(program, {"y": SERIES}, ppgp.inference.MAP(), progress=False)
    with pytest.raises(DataError, match=r"in the shape \[5, 4\], got in the shape \[5, 6\] at 'e'"):
        posterior.predict(hours=6)
