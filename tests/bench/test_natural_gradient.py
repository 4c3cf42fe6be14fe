"""A flow guide by natural gradients from its own draws, beside Adam: CPU seconds to one ELBO.

Both begin at the same guide, on the eight schools (Rubin 1981). Each evaluation of the ELBO is not
timed. Adam has the better of two rates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import SVI as PyroSVI
from pyro.infer import Trace_ELBO
from torch import Tensor

from ppgp.density import Target
from ppgp.inference import SVI
from ppgp.inference.variational.natural_steps import NaturalSteps
from ppgp.inference.variational.pyro_svi import _autoguide
from ppgp.models import Program

ADAM_STEPS, NATURAL_STEPS, RATE = 4000, 100, 0.5
ADAM_RATES = (0.02, 0.005)
CHECKS, CHECK_DRAWS = 20, 4000
SHARE = 0.5
Path = list[tuple[float, float]]


def schools(y: Tensor, sd: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(y.new_zeros(()), 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(y.new_tensor(5.0)))
    with pyro.plate("schools", len(y)):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.sample("y", dist.Normal(theta, sd), obs=y)


DATA = {
    "y": torch.tensor([28.0, 8, -3, 7, -1, 1, 18, 12], dtype=torch.float64),
    "sd": torch.tensor([15.0, 10, 16, 11, 9, 11, 10, 18], dtype=torch.float64),
}


def elbo(guide: Any, target: Target) -> float:
    with torch.no_grad():
        q = guide.get_posterior()
        z = q.sample((CHECK_DRAWS,))
        log_q = q.log_prob(z)
    return float((target.value_and_grad_batch(z)[0] - log_q).mean())


def path_of(steps: int, step: Callable[[float], object], guide: Any, target: Target) -> Path:
    """Return CPU seconds and ELBO; the rate falls to 1 % along a cosine."""
    spent, path = 0.0, []
    for t in range(steps):
        started = time.process_time()
        step(0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * t / steps)))
        spent += time.process_time() - started
        if (t + 1) % (steps // CHECKS) == 0:
            path.append((spent, elbo(guide, target)))
    return path


def by_adam(rate: float, target: Target) -> Path:
    pyro.set_rng_seed(0)
    with pyro.get_param_store().scope(), pyro.validation_enabled(False):
        guide = _autoguide("iaf", schools, DATA["y"])
        optimizer = pyro.optim.PyroOptim(torch.optim.Adam, {"lr": rate})
        loop = PyroSVI(schools, guide, optimizer, Trace_ELBO())

        def step(factor: float) -> None:
            for one in optimizer.optim_objs.values():
                one.param_groups[0]["lr"] = rate * factor
            loop.step(**DATA)

        return path_of(ADAM_STEPS, step, guide, target)


def by_natural_gradients(target: Target) -> Path:
    pyro.set_rng_seed(0)
    with pyro.get_param_store().scope(), pyro.validation_enabled(False):
        guide = _autoguide("iaf", schools, DATA["y"])
        options = SVI(guide="iaf", optimizer="natural")._options()
        steps = NaturalSteps(options, target, schools, guide, torch.Generator())
        return path_of(NATURAL_STEPS, lambda factor: steps.step(RATE * factor), guide, target)


@pytest.fixture
def double() -> Iterator[None]:
    """Let the noise of Pyro's flows be in float64, as the data are: it has the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double")
@pytest.mark.filterwarnings("ignore")
def test_seconds_to_the_elbo_of_adam(benchmark: Any) -> None:
    target = Target(Program(schools), DATA)
    target.value_and_grad_batch(target.origin().expand(64, -1))  # compiles
    target.value_and_grad_batch(target.origin().expand(CHECK_DRAWS, -1))
    natural = by_natural_gradients(target)
    adam = max((by_adam(rate, target) for rate in ADAM_RATES), key=lambda path: path[-1][1])
    wanted = max(value for _, value in adam)
    theirs = next(seconds for seconds, value in adam if value >= wanted)
    ours = next((seconds for seconds, value in natural if value >= wanted), math.inf)
    print(
        f"\na flow on eight schools: ELBO {wanted:.2f} of Adam after {theirs:.1f} CPU seconds, of "
        f"natural gradients after {ours:.1f}, ratio {ours / theirs:.2f}; these end at "
        f"{natural[-1][1]:.2f} after {natural[-1][0]:.1f}"
    )
    benchmark.extra_info["ratio"] = ours / theirs
    benchmark.pedantic(by_natural_gradients, (target,), rounds=1)
    assert ours <= SHARE * theirs
