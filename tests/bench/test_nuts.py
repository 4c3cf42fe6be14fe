"""NUTS: smallest bulk effective sample size per second, compiling and warm-up included, imports not, for everyone."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import show

import ppgp
from ppgp import diagnostics, inference, kernels, models
from ppgp.data import Dataset

CHAINS = 2


@pytest.fixture(autouse=True)
def all_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


def logistic() -> tuple[Any, Dataset]:
    return models.LogisticRegression(), ppgp.load("breast_cancer").standardised(scale_y=False)[0]


def gp() -> tuple[Any, Dataset]:
    """n = 200, two columns: variance, two lengthscales, noise."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 2, generator=generator, dtype=torch.float64)
    f = torch.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    y = f + 0.3 * torch.randn(200, generator=generator, dtype=torch.float64)
    return models.GP(kernels.ARD(kernels.RBF())), Dataset(X, y).standardised()[0]


def rate(draws: dict[str, np.ndarray], seconds: float) -> float:
    """Effective draws a second of the slowest scalar."""
    sizes = [diagnostics.ess(x) for _, x in diagnostics.scalars({k: torch.from_numpy(np.asarray(v)) for k, v in draws.items()})]
    return min(sizes) / seconds


def by_ppgp(model: Any, data: Dataset, engine: str, draws: int, warmup: int) -> float:
    how = inference.NUTS(draws=draws, warmup=warmup, chains=CHAINS, engine=engine)
    started = time.perf_counter()
    posterior = ppgp.fit(model, data, how, seed=1, progress=False, standardise=False)
    seconds = time.perf_counter() - started
    return rate({k: v.numpy() for k, v in posterior.draws.items()}, seconds)


def by_numpyro(name: str, data: Dataset, draws: int, warmup: int) -> dict[str, float]:
    """The best of its ways to run chains on this machine's cores, and that with the full mass matrix in place of its default."""
    numpyro = pytest.importorskip("numpyro")
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist

    X, y = jnp.asarray(data.X.numpy()), jnp.asarray(data.y.numpy())

    def logistic_model() -> None:
        weight = numpyro.sample("weight", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
        bias = numpyro.sample("bias", dist.Normal(0, 1))
        numpyro.sample("y", dist.Bernoulli(logits=X @ weight + bias), obs=y)

    def gp_model() -> None:
        variance = numpyro.sample("variance", dist.LogNormal(0, 1))
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(0, 1).expand([X.shape[1]]).to_event(1))
        noise = numpyro.sample("noise", dist.LogNormal(-2, 1))
        difference = (X[:, None] - X[None]) / lengthscale
        K = variance * jnp.exp(-0.5 * (difference**2).sum(-1)) + noise * jnp.eye(len(X))
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(X)), covariance_matrix=K), obs=y)

    model = {"logistic": logistic_model, "gp": gp_model}[name]

    def measured(method: str, dense: bool) -> float:
        sampler = numpyro.infer.MCMC(
            numpyro.infer.NUTS(model, dense_mass=dense),
            num_warmup=warmup,
            num_samples=draws,
            num_chains=CHAINS,
            chain_method=method,
            progress_bar=False,
        )
        started = time.perf_counter()
        sampler.run(jax.random.PRNGKey(0))
        found = {k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()}
        return rate(found, time.perf_counter() - started)

    rates = {method: measured(method, False) for method in ("parallel", "vectorized", "sequential")}
    best = max(rates, key=rates.__getitem__)
    return {f"NumPyro ({best})": rates[best], "NumPyro, dense mass matrix": measured(best, True)}


@pytest.fixture(scope="module")
def jax_in_float64() -> Iterator[None]:
    """Two host devices and double precision must be asked for before JAX starts."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={CHAINS}"
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["logistic", "gp"])
def test_effective_draws_per_second(name: str, benchmark: Any, jax_in_float64: None) -> None:
    model, data = {"logistic": logistic, "gp": gp}[name]()
    by_ppgp(model, data.rows(slice(0, 20)), "nutpie", 5, 5)  # imports, for us
    by_numpyro(name, data.rows(slice(0, 20)), 5, 5)  # and for them
    length = {"logistic": 1000, "gp": 500}[name]  # draws, and warm-up, for everyone but Pyro, whom they would take many minutes
    figures = {
        "ppgp": benchmark.pedantic(by_ppgp, (model, data, "nutpie", length, length), rounds=1),
        **by_numpyro(name, data, length, length),
        "Pyro": by_ppgp(model, data, "pyro", 200, 300),
    }
    show(
        f"NUTS on {name}, p = {sum(v.numel() for v in _sites(model, data))}: effective draws a second",
        figures,
        "/s",
        1.0,
        smaller=False,
    )
    benchmark.extra_info.update(figures)
    assert all(map(math.isfinite, figures.values()))
    assert figures["ppgp"] >= 5 * figures["Pyro"]
    assert figures["ppgp"] >= max(rate for peer, rate in figures.items() if peer.startswith("NumPyro"))


def _sites(model: Any, data: Dataset) -> list[torch.Tensor]:
    target = ppgp.Target(model, data)
    return list(target.constrain(target.start()).values())
