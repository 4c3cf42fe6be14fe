"""Programs of users in Pyro and, written again, in NumPyro: runs of NUTS in this process.

``python programs_in_numpyro.py NAME LIBRARY DRAWS CHAINS`` prints a JSON record: the least bulk
effective sample size over sites, the seconds and the seconds of processor, which have compiling in
them and the imports not. With ``FIRST LAST`` behind it, it prints a JSON list, the divergences of a
run for each seed from FIRST to LAST. Both are in float64, with chains in parallel where they are
timed, and NumPyro's results are awaited.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = ("ppgp", "NumPyro")
Figures = dict[str, float]
Draws = Mapping[str, np.ndarray]  # {site: [chain, draw, *event]}

# -- three programs of some size -------------------------------------------------------------------

ROWS, GROUPS = 5000, 200
STUDENTS, ITEMS = 300, 30
INPUTS, HIDDEN, POINTS = 3, 15, 300


def varying_logistic() -> tuple[Callable[..., None], dict[str, Any]]:
    """A logistic regression whose intercept and slope vary between groups."""
    import pyro
    import pyro.distributions as dist
    import torch

    def model(x, group, y):
        centre = pyro.sample("centre", dist.Normal(torch.zeros(2), 2.0).to_event(1))
        scale = pyro.sample("scale", dist.HalfNormal(torch.ones(2)).to_event(1))
        with pyro.plate("groups", GROUPS):
            e = pyro.sample("e", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        effect = centre + scale * e
        with pyro.plate("data", len(x)):
            logits = effect[group, 0] + effect[group, 1] * x
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    drawn = torch.Generator().manual_seed(0)
    x, e = (torch.randn(*shape, generator=drawn) for shape in ((ROWS,), (GROUPS, 2)))
    group = torch.arange(ROWS) % GROUPS
    logits = -0.3 + 0.8 * e[group, 0] + (1.0 + 0.5 * e[group, 1]) * x
    y = (torch.rand(ROWS, generator=drawn) < logits.sigmoid()).to(x)
    return model, {"x": x, "group": group, "y": y}


def item_response() -> tuple[Callable[..., None], dict[str, Any]]:
    """The ability of students and the difficulty of items."""
    import pyro
    import pyro.distributions as dist
    import torch

    def model(student, item, y):
        spread = pyro.sample("spread", dist.HalfNormal(1.0))
        with pyro.plate("students", STUDENTS):
            ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        with pyro.plate("items", ITEMS):
            difficulty = pyro.sample("difficulty", dist.Normal(0.0, spread))
        with pyro.plate("answers", len(student)):
            logits = ability[student] - difficulty[item]
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    drawn = torch.Generator().manual_seed(0)
    index = torch.arange(STUDENTS * ITEMS)
    student, item = index // ITEMS, index % ITEMS
    ability, difficulty = (torch.randn(n, generator=drawn) for n in (STUDENTS, ITEMS))
    logits = ability[student] - difficulty[item]
    y = (torch.rand(len(index), generator=drawn) < logits.sigmoid()).to(ability)
    return model, {"student": student, "item": item, "y": y}


def network() -> tuple[Callable[..., None], dict[str, Any]]:
    """A network of one hidden layer, with 76 weights."""
    import pyro
    import pyro.distributions as dist
    import torch

    def model(x, y):
        first = pyro.sample("first", dist.Normal(torch.zeros(INPUTS, HIDDEN), 1.0).to_event(2))
        bias = pyro.sample("bias", dist.Normal(torch.zeros(HIDDEN), 1.0).to_event(1))
        second = pyro.sample("second", dist.Normal(torch.zeros(HIDDEN), 1.0).to_event(1))
        constant = pyro.sample("constant", dist.Normal(0.0, 1.0))
        sigma = pyro.sample("sigma", dist.LogNormal(-1.0, 1.0))
        f = torch.tanh(x @ first + bias) @ second + constant
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, sigma), obs=y)

    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(POINTS, INPUTS, generator=drawn)
    f = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    return model, {"x": x, "y": f + 0.2 * torch.randn(POINTS, generator=drawn)}


def values_of_a_network(draws: Draws, arguments: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the function at ten rows, and the scale: units can be exchanged."""
    hidden = np.tanh(arguments["x"][:10] @ draws["first"] + draws["bias"][..., None, :])
    f = (hidden * draws["second"][..., None, :]).sum(-1) + draws["constant"][..., None]
    return {"f": f, "sigma": draws["sigma"]}


LARGE = {"varying_logistic": varying_logistic, "item_response": item_response, "network": network}
#: of tests/programs_of_users.py
SMALL = (
    *("linear_regression", "logistic_regression", "poisson_regression", "robust_regression"),
    *("schools_reparametrised", "varying_slopes", "stochastic_volatility", "gamma_poisson_counts"),
)
NAMES = (*LARGE, *SMALL)
LABEL_FREE = {"network": values_of_a_network}
#: NumPyro's sites are those of the program, but for these
RENAMED: dict[str, str] = {"theta_base": "theta_decentered"}


def program(name: str) -> tuple[Callable[..., None], dict[str, Any]]:
    """Return a program of Pyro with its arguments; torch's default dtype is that of the data."""
    if name in LARGE:
        return LARGE[name]()
    sys.path.append(str(Path(__file__).parents[1]))
    from programs_of_users import PROGRAMS

    users = PROGRAMS[name][1]()
    return users.program, dict(users.arguments)


# -- the programs in NumPyro -----------------------------------------------------------------------


def numpyro_programs() -> dict[str, Callable[..., None]]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as nd
    from numpyro.infer.reparam import LocScaleReparam

    sample, plate = numpyro.sample, numpyro.plate

    def varying_logistic(x, group, y):
        centre = sample("centre", nd.Normal(jnp.zeros(2), 2.0).to_event(1))
        scale = sample("scale", nd.HalfNormal(jnp.ones(2)).to_event(1))
        with plate("groups", GROUPS):
            e = sample("e", nd.Normal(jnp.zeros(2), 1.0).to_event(1))
        effect = centre + scale * e
        with plate("data", len(x)):
            logits = effect[group, 0] + effect[group, 1] * x
            sample("y", nd.Bernoulli(logits=logits), obs=y)

    def item_response(student, item, y):
        spread = sample("spread", nd.HalfNormal(1.0))
        with plate("students", STUDENTS):
            ability = sample("ability", nd.Normal(0.0, 1.0))
        with plate("items", ITEMS):
            difficulty = sample("difficulty", nd.Normal(0.0, spread))
        with plate("answers", len(student)):
            logits = ability[student] - difficulty[item]
            sample("y", nd.Bernoulli(logits=logits), obs=y)

    def network(x, y):
        first = sample("first", nd.Normal(jnp.zeros((INPUTS, HIDDEN)), 1.0).to_event(2))
        bias = sample("bias", nd.Normal(jnp.zeros(HIDDEN), 1.0).to_event(1))
        second = sample("second", nd.Normal(jnp.zeros(HIDDEN), 1.0).to_event(1))
        constant = sample("constant", nd.Normal(0.0, 1.0))
        sigma = sample("sigma", nd.LogNormal(-1.0, 1.0))
        f = jnp.tanh(x @ first + bias) @ second + constant
        with plate("data", len(x)):
            sample("y", nd.Normal(f, sigma), obs=y)

    def linear_regression(x, y):
        a = sample("a", nd.Normal(0.0, 10.0))
        b = sample("b", nd.Normal(0.0, 1.0))
        sigma = sample("sigma", nd.Uniform(0.0, 10.0))
        with plate("data", len(x)):
            sample("y", nd.Normal(a + b * x, sigma), obs=y)

    def logistic_regression(x, y):
        w = sample("w", nd.Normal(jnp.zeros(3), 1.0).to_event(1))
        b = sample("b", nd.Normal(0.0, 2.0))
        with plate("data", len(x)):
            sample("y", nd.Bernoulli(logits=x @ w + b), obs=y)

    def poisson_regression(x, y):
        coefficients = sample("coefficients", nd.Normal(0.0, 1.0).expand([2]).to_event(1))
        with plate("data", len(x)):
            sample("y", nd.Poisson(jnp.exp(coefficients[0] + coefficients[1] * x)), obs=y)

    def robust_regression(x, y):
        df = sample("df", nd.Gamma(2.0, 0.1))
        scale = sample("scale", nd.HalfCauchy(1.0))
        slope = sample("slope", nd.Normal(0.0, 5.0))
        with plate("data", len(x)):
            sample("y", nd.StudentT(1.0 + df, slope * x, scale), obs=y)

    def schools_reparametrised(sigma, y):
        mu = sample("mu", nd.Normal(0.0, 5.0))
        tau = sample("tau", nd.HalfCauchy(5.0))
        with plate("J", len(sigma)):
            with numpyro.handlers.reparam(config={"theta": LocScaleReparam(0.0)}):
                theta = sample("theta", nd.Normal(mu, tau))
            sample("y", nd.Normal(theta, sigma), obs=y)

    def varying_slopes(group, x, y):
        centre = sample("centre", nd.Normal(jnp.zeros(2), 2.0).to_event(1))
        scale = sample("scale", nd.HalfNormal(jnp.ones(2)).to_event(1))
        L = sample("L", nd.LKJCholesky(2, 2.0))
        with plate("groups", 5):
            law = nd.MultivariateNormal(centre, scale_tril=scale[:, None] * L)
            effect = sample("effect", law)
        sigma = sample("sigma", nd.HalfNormal(1.0))
        with plate("data", len(x)):
            sample("y", nd.Normal(effect[group, 0] + effect[group, 1] * x, sigma), obs=y)

    def stochastic_volatility(returns):
        sigma = sample("sigma", nd.Exponential(5.0))
        nu = sample("nu", nd.Exponential(0.1))
        steps = sample("steps", nd.Normal(jnp.zeros(len(returns)), 1.0).to_event(1))
        volatility = jnp.exp(jnp.cumsum(sigma * steps))
        with plate("time", len(returns)):
            sample("r", nd.StudentT(2.0 + nu, 0.0, volatility), obs=returns)

    def gamma_poisson_counts(group, y):
        rate = sample("rate", nd.Gamma(2.0, 0.5))
        shape = sample("shape", nd.LogNormal(0.0, 1.0))
        factor = sample("factor", nd.LogNormal(0.0, 0.5))
        mean = jnp.where(group, rate * factor, rate)
        with plate("data", len(group)):
            sample("y", nd.GammaPoisson(shape, shape / mean), obs=y)

    written = locals()
    return {name: written[name] for name in NAMES}


# -- one run ---------------------------------------------------------------------------------------


def processor() -> float:
    """Return the seconds of processor of this process and of those that it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def arguments_of(name: str) -> dict[str, Any]:
    """Return the arguments of a program, without torch."""
    tensors = program(name)[1]
    return {k: v.numpy() if hasattr(v, "numpy") else v for k, v in tensors.items()}


def run_of_numpyro(name: str, length: int, chains: int, seed: int, method: str) -> Any:
    """Return NumPyro's sampler after its run."""
    import jax
    import numpyro

    arguments = arguments_of(name).items()
    jaxed = {k: jax.numpy.asarray(v) if hasattr(v, "shape") else v for k, v in arguments}
    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(numpyro_programs()[name]),
        num_warmup=length,
        num_samples=length,
        num_chains=chains,
        chain_method=method,
        progress_bar=False,
    )
    sampler.run(jax.random.PRNGKey(seed), **jaxed)
    jax.block_until_ready(sampler.get_samples())
    return sampler


def run_of_ppgp(name: str, length: int, chains: int, seed: int) -> Any:
    """Return the posterior of ppgp."""
    import ppgp
    from ppgp.inference import NUTS

    model, tensors = program(name)
    how = NUTS(draws=length, chains=chains)
    return ppgp.fit(model, tensors, how, seed=seed, progress=False)


def draws_of(name: str, library: str, length: int, chains: int) -> Draws:
    """Return the draws of one run."""
    if library == "ppgp":
        found = run_of_ppgp(name, length, chains, 1).draws
        return {site: x.numpy() for site, x in found.items()}
    sampler = run_of_numpyro(name, length, chains, 1, "parallel")
    return {k: np.asarray(x) for k, x in sampler.get_samples(group_by_chain=True).items()}


def divergences(name: str, library: str, length: int, chains: int, seeds: range) -> list[int]:
    """Return the divergences of a run for each seed.

    NumPyro compiles anew for every run: the chains of its runs are drawn at once, with one seed.
    """
    if library == "ppgp":
        fits = (run_of_ppgp(name, length, chains, seed) for seed in seeds)
        return [int(posterior.stats["diverging"].sum()) for posterior in fits]
    sampler = run_of_numpyro(name, length, chains * len(seeds), seeds.start, "vectorized")
    diverging = np.asarray(sampler.get_extra_fields(group_by_chain=True)["diverging"])
    return diverging.reshape(len(seeds), -1).sum(1).tolist()


def measured(name: str, library: str, length: int, chains: int) -> Figures:
    """Return the figures of one run."""
    from ppgp import diagnostics

    began, used = time.perf_counter(), processor()
    draws = draws_of(name, library, length, chains)
    seconds, of_processor = time.perf_counter() - began, processor() - used
    draws = {RENAMED.get(str(site), str(site)): x for site, x in draws.items() if site != "theta"}
    if name in LABEL_FREE:
        draws = LABEL_FREE[name](draws, arguments_of(name))
    numbers = [x[(..., *i)] for x in draws.values() for i in np.ndindex(*x.shape[2:])]
    sizes = [diagnostics.ess(x) for x in numbers if x.std() > 0]
    return {
        "ess": min(sizes),
        "seconds": seconds,
        "processor": of_processor,
        "numbers": len(sizes),
    }


def main(name: str, library: str, length: int, chains: int, seeds: range) -> None:
    # JAX reads the flags when it is imported
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={chains}"
    warnings.simplefilter("ignore")
    import torch

    torch.set_default_dtype(torch.float64)
    if library == "NumPyro":
        import jax

        jax.config.update("jax_enable_x64", True)
    if seeds:
        print(json.dumps(divergences(name, library, length, chains, seeds)))
        return
    measured("linear_regression", library, 5, chains)  # imports
    print(json.dumps(measured(name, library, length, chains)))


if __name__ == "__main__":
    name, library, length, chains, *ends = sys.argv[1:]
    seeds = range(int(ends[0]), int(ends[1]) + 1) if ends else range(0)
    main(name, library, int(length), int(chains), seeds)
