"""NumPyro's NUTS on the posteriors of the benchmark, in a process with JAX's threads and flags.

``python numpyro_peer.py NAME DRAWS CHAINS DATA_DIR`` prints a JSON record that maps each peer to
its effective draws per second.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COUNTIES = 85
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


def by_numpyro(name: str, data: Any, draws: int, warmup: int, chains: int) -> dict[str, float]:
    """Return the rates of NumPyro's fastest way to run chains, with either mass matrix."""
    import jax
    import jax.numpy as jnp
    import numpyro

    tables = data.values() if isinstance(data, dict) else (data.X, data.y)
    arguments = [jnp.asarray(x.numpy()) for x in tables]

    def measured(method: str, dense: bool) -> float:
        sampler = numpyro.infer.MCMC(
            numpyro.infer.NUTS(numpyro_models()[name], dense_mass=dense),
            num_warmup=warmup,
            num_samples=draws,
            num_chains=chains,
            chain_method=method,
            progress_bar=False,
        )
        started = time.perf_counter()
        sampler.run(jax.random.PRNGKey(0), *arguments)
        found = {k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()}
        return rate(found, time.perf_counter() - started)

    rates = {method: measured(method, False) for method in ("parallel", "vectorized", "sequential")}
    best = max(rates, key=rates.__getitem__)
    return {f"NumPyro ({best})": rates[best], "NumPyro, dense mass matrix": measured(best, True)}


def main(name: str, draws: int, chains: int, folder: Path) -> None:
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
    by_numpyro(name, few, 5, 5, chains)  # imports and compiles
    print(json.dumps(by_numpyro(name, data, draws, draws, chains)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
