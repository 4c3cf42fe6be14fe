"""NumPyro's NUTS on the posteriors of the benchmark, in processes with JAX's threads and flags.

``python numpyro_peer.py NAME DRAWS CHAINS DATA_DIR`` prints a JSON record that maps each peer to
its effective draws per second. With ``METHOD METRIC`` at the end it prints the rate of one way to
run chains with one mass matrix. A run that does not end within ``LIMIT`` seconds is stopped, and
its rate is stated as an upper bound: ", at most" is then part of its name.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COUNTIES = 85
METHODS = ("parallel", "vectorized", "sequential")
LIMIT = 300  # seconds
#: what others are made of, and programs of ppgp do not have
AUXILIARY = {"shares", "e"}


def rate(draws: dict[str, np.ndarray], seconds: float) -> float:
    from ppgp import diagnostics

    kept = [v for name, v in draws.items() if name not in AUXILIARY]
    sizes = [diagnostics.ess(v[(..., *i)]) for v in kept for i in np.ndindex(*v.shape[2:])]
    return min(sizes) / seconds


def numpyro_models() -> dict[str, Callable[..., None]]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as nd

    def logistic(X: Any, y: Any) -> None:
        weight = numpyro.sample("weight", nd.Normal(0, 1).expand([X.shape[1]]).to_event(1))
        bias = numpyro.sample("bias", nd.Normal(0, 1))
        numpyro.sample("y", nd.Bernoulli(logits=X @ weight + bias), obs=y)

    def gp(X: Any, y: Any) -> None:
        variance = numpyro.sample("variance", nd.LogNormal(0, 1))
        lengthscale = numpyro.sample(
            "lengthscale", nd.LogNormal(0, 1).expand([X.shape[1]]).to_event(1)
        )
        noise = numpyro.sample("noise", nd.LogNormal(-2, 1))
        difference = (X[:, None] - X[None]) / lengthscale
        K = variance * jnp.exp(-0.5 * (difference**2).sum(-1)) + noise * jnp.eye(len(X))
        numpyro.sample("y", nd.MultivariateNormal(jnp.zeros(len(X)), covariance_matrix=K), obs=y)

    def schools(sigma: Any, y: Any) -> None:
        mu = numpyro.sample("mu", nd.Normal(0, 5))
        tau = numpyro.sample("tau", nd.HalfCauchy(5))
        z = numpyro.sample("z", nd.Normal(0, 1).expand([len(sigma)]).to_event(1))
        numpyro.sample("y", nd.Normal(mu + tau * z, sigma).to_event(1), obs=y)

    def ordinal(X: Any, y: Any) -> None:
        weight = numpyro.sample("weight", nd.Normal(0, 1).expand([X.shape[1]]).to_event(1))
        shares = numpyro.sample("shares", nd.Dirichlet(jnp.ones(3)))
        below = jnp.cumsum(shares)[:-1]
        cutpoints = numpyro.deterministic("cutpoints", jnp.log(below) - jnp.log1p(-below))
        numpyro.sample("y", nd.OrderedLogistic(X @ weight, cutpoints), obs=y.astype(int))

    def radon(X: Any, y: Any, county: Any) -> None:
        weight = numpyro.sample("weight", nd.Normal(0, 1).expand([2]).to_event(1))
        bias = numpyro.sample("bias", nd.Normal(0, 5))
        noise = numpyro.sample("noise", nd.LogNormal(-2, 1))
        sd = numpyro.sample("county.sd", nd.HalfNormal(1).expand([2]).to_event(1))
        white = numpyro.sample("e", nd.Normal(0, 1).expand([COUNTIES, 2]).to_event(2))
        effect = numpyro.deterministic("county.effect", white * sd)
        f = X @ weight + bias + effect[county, 0] + effect[county, 1] * X[:, 0]
        numpyro.sample("y", nd.Normal(f, jnp.sqrt(noise)).to_event(1), obs=y)

    return {
        "logistic": logistic,
        "credit": logistic,
        "gp": gp,
        "schools": schools,
        "ordinal": ordinal,
        "radon": radon,
    }


def measured(name: str, data: Any, length: int, chains: int, method: str, metric: str) -> float:
    """Return the rate of one way to run chains, with one mass matrix, compilation included."""
    import jax
    import jax.numpy as jnp
    import numpyro

    tables = data.values() if isinstance(data, dict) else (data.X, data.y)
    arguments = [jnp.asarray(x.numpy()) for x in tables]
    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(numpyro_models()[name], dense_mass=metric == "dense"),
        num_warmup=length,
        num_samples=length,
        num_chains=chains,
        chain_method=method,
        progress_bar=False,
    )
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends this process
    signal.alarm(LIMIT)
    started = time.perf_counter()
    sampler.run(jax.random.PRNGKey(0), *arguments)
    found = {k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()}
    seconds = time.perf_counter() - started
    signal.alarm(0)
    return rate(found, seconds)


def in_a_process(arguments: list[str], method: str, metric: str) -> tuple[float, str]:
    """Return what this file prints for one way, and what to add to the name of the peer.

    Estimates of the effective sample size of S draws are capped at S log10(S).
    """
    command = [sys.executable, __file__, *arguments, method, metric]
    _, length, chains, _ = arguments
    draws = int(length) * int(chains)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == -signal.SIGALRM:
        return draws * math.log10(draws) / LIMIT, ", at most"
    done.check_returncode()
    return float(done.stdout.splitlines()[-1]), ""


def best_of(arguments: list[str]) -> dict[str, float]:
    """Return the rates of NumPyro's fastest way to run chains, with either mass matrix.

    A way that ended is preferred to one that did not.
    """
    found = {method: in_a_process(arguments, method, "diagonal") for method in METHODS}
    best = max(found, key=lambda method: (not found[method][1], found[method][0]))
    peers = {f"NumPyro ({best})": found[best]}
    peers["NumPyro, dense mass matrix"] = in_a_process(arguments, best, "dense")
    return {peer + mark: found for peer, (found, mark) in peers.items()}


def main(name: str, length: int, chains: int, folder: Path, method: str, metric: str) -> None:
    # JAX reads the flags when it is imported
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={chains}"
    import jax

    jax.config.update("jax_enable_x64", True)
    from posteriors import POSTERIORS
    from regressions import REGRESSIONS

    if name in REGRESSIONS:
        *_, data = REGRESSIONS[name](folder)
    else:
        _, data = POSTERIORS[name](folder)
    few = data if isinstance(data, dict) else data.rows(slice(0, 20))
    measured(name, few, 5, chains, method, metric)  # imports
    print(measured(name, data, length, chains, method, metric))


if __name__ == "__main__":
    if len(sys.argv) == 5:
        print(json.dumps(best_of(sys.argv[1:])))
    else:
        name, length, chains, folder, method, metric = sys.argv[1:]
        main(name, int(length), int(chains), Path(folder), method, metric)
