"""An ARMA density as a Python loop and as a scan, compiled, against a scan of JAX."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from side_by_side import alternate, show
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.models.program import Program

STEPS = 200
SHARE_OF_AUTOGRAD = 0.1  # of the time of the program itself, at most


def errors_in_python(first: Tensor, y: Tensor, mu: Tensor, phi: Tensor, theta: Tensor) -> Tensor:
    errors = [first]
    for t in range(1, len(y)):
        errors.append(y[t] - mu - phi * y[t - 1] - theta * errors[-1])
    return torch.stack(errors)


def errors_by_scan(first: Tensor, y: Tensor, mu: Tensor, phi: Tensor, theta: Tensor) -> Tensor:
    def step(error: Tensor, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        before, now = pair
        error = now - mu - phi * before - theta * error
        return error, error

    _, errors = ppgp.scan(step, first, (y[:-1], y[1:]))
    return torch.cat([first[None], errors])


def target_of(errors: Callable[..., Tensor], y: Tensor) -> Target:
    zero = torch.zeros((), dtype=torch.float64)

    def arma(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(zero, 10.0))
        phi = pyro.sample("phi", dist.Normal(zero, 2.0))
        theta = pyro.sample("theta", dist.Normal(zero, 2.0))
        sigma = pyro.sample("sigma", dist.HalfCauchy(zero + 2.5))
        found = errors(y[0] - mu - phi * mu, y, mu, phi, theta)
        pyro.sample("error", dist.Normal(zero, sigma).expand([STEPS]).to_event(1), obs=found)

    return Target(Program(arma), {"y": y})


def density_of_jax(y: Tensor) -> Callable[[Any], Any]:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    data = jnp.asarray(y.numpy())

    def density(z: Any) -> Any:
        mu, phi, theta, log_sigma = z
        sigma = jnp.exp(log_sigma)

        def step(error: Any, pair: Any) -> Any:
            error = pair[1] - mu - phi * pair[0] - theta * error
            return error, error

        first = data[0] - mu - phi * mu
        _, rest = jax.lax.scan(step, first, (data[:-1], data[1:]))
        errors = jnp.concatenate([first[None], rest])
        prior = -0.5 * ((mu / 10) ** 2 + (phi / 2) ** 2 + (theta / 2) ** 2)
        prior = prior - jnp.log1p((sigma / 2.5) ** 2) + log_sigma
        return prior - STEPS * log_sigma - 0.5 * (errors**2).sum() / sigma**2

    return jax.jit(jax.value_and_grad(density))


def test_loops_of_programs(benchmark: Any) -> None:
    y = torch.sin(torch.arange(STEPS, dtype=torch.float64)) + 0.1
    z = torch.tensor([0.1, 0.3, -0.2, 0.4], dtype=torch.float64)
    compiled = {}
    for name, errors in (("loop", errors_in_python), ("scan", errors_by_scan)):
        target = target_of(errors, y)
        started = time.perf_counter()
        compiled[name] = target.compiled()
        print(f"{name}: compiled in {time.perf_counter() - started:.2f} s")
    one = partial(target.eager_gradient, True)
    jax_density = density_of_jax(y)
    place = z.numpy()
    wanted = torch.tensor(jax_density(place)[1].tolist(), dtype=torch.float64)
    for graph in compiled.values():
        torch.testing.assert_close(graph(z)[1], wanted, rtol=1e-10, atol=1e-10)
    work = {
        "ppgp, scan": lambda: compiled["scan"](z),
        "ppgp, Python loop": lambda: compiled["loop"](z),
        "JAX, scan": lambda: jax_density(place)[1].block_until_ready(),
        "Pyro, eager": lambda: one(z),
    }
    times = alternate(work, rounds=10, repeat=20)
    title = "ARMA of 200 steps, value and gradient"
    benchmark.extra_info["ratio"] = show(title, times, "us", 1e6, ours="ppgp, scan")
    benchmark(work["ppgp, scan"])
    assert times["ppgp, scan"] <= SHARE_OF_AUTOGRAD * times["Pyro, eager"]
