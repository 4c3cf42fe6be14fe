"""Programs as users of Pyro and NumPyro write them, in float32, with small data.

They are of the kinds of the examples and tutorials of Pyro and of NumPyro, and written anew. Each
function of ``PROGRAMS`` returns a program with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.contrib.gp as gp
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.contrib.forecast import ForecastingModel
from pyro.distributions import constraints
from pyro.infer.reparam import LatentStableReparam, LocScaleReparam, StableReparam
from pyro.nn import PyroModule, PyroParam, PyroSample
from torch import Tensor, nn
from torch.nn.functional import softplus

import ppgp

handlers: Any = poutine  # its handlers have no types
infer_parallel = {"enumerate": "parallel"}


@dataclass(frozen=True)
class UsersProgram:
    """A program with its arguments.

    Attributes:
        program: The Pyro program.
        arguments: Those of a fit.
        data: The names of the arguments that a prediction leaves out.
        guide: The guide that belongs to the program; None: the default one of SVI.
    """

    program: Callable[..., Any]
    arguments: Mapping[str, Any]
    data: tuple[str, ...] = ("y",)
    guide: Callable[..., Any] | None = None

    @property
    def of_a_prediction(self) -> dict[str, Any]:
        """The arguments of the fit without the data."""
        return {name: v for name, v in self.arguments.items() if name not in self.data}


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=random(seed))


@contextmanager
def drawn_with(seed: int) -> Iterator[None]:
    """Context manager: what is drawn inside depends on the seed, and nothing outside does."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


# -- regressions -----------------------------------------------------------------------------------


def linear_regression() -> UsersProgram:
    def model(x, y=None):
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        sigma = pyro.sample("sigma", dist.Uniform(0.0, 10.0))
        with pyro.plate("data", len(x)):
            return pyro.sample("y", dist.Normal(a + b * x, sigma), obs=y)

    x = normal(0, 30)
    return UsersProgram(model, {"x": x, "y": 1 + 2 * x + 0.5 * normal(1, 30)})


def logistic_regression() -> UsersProgram:
    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        b = pyro.sample("b", dist.Normal(0.0, 2.0))
        with pyro.plate("data", x.shape[0]):
            pyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)

    x = normal(0, 60, 3)
    y = (x @ torch.tensor([1.0, -1.0, 0.0]) + normal(1, 60) > 0).float()
    return UsersProgram(model, {"x": x, "y": y})


def poisson_regression() -> UsersProgram:
    def model(x, y=None):
        coefficients = pyro.sample("coefficients", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Poisson((coefficients[0] + coefficients[1] * x).exp()), obs=y)

    x = normal(0, 40)
    return UsersProgram(model, {"x": x, "y": torch.poisson((0.5 + 0.4 * x).exp(), random(1))})


def robust_regression() -> UsersProgram:
    def model(x, y=None):
        df = pyro.sample("df", dist.Gamma(2.0, 0.1))
        scale = pyro.sample("scale", dist.HalfCauchy(1.0))
        slope = pyro.sample("slope", dist.Normal(0.0, 5.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.StudentT(1.0 + df, slope * x, scale), obs=y)

    x = normal(0, 40)
    y = x + 0.3 * normal(1, 40)
    y[::10] += 5
    return UsersProgram(model, {"x": x, "y": y})


def gamma_poisson_counts() -> UsersProgram:
    def model(group, y=None):
        rate = pyro.sample("rate", dist.Gamma(2.0, 0.5))
        shape = pyro.sample("shape", dist.LogNormal(0.0, 1.0))
        factor = pyro.sample("factor", dist.LogNormal(0.0, 0.5))
        mean = torch.where(group, rate * factor, rate)
        with pyro.plate("data", len(group)):
            pyro.sample("y", dist.GammaPoisson(shape, shape / mean), obs=y)

    group = torch.arange(40) % 2 == 0
    y = torch.poisson(torch.where(group, 6.0, 3.0), random(0))
    return UsersProgram(model, {"group": group, "y": y})


def zero_inflated_counts() -> UsersProgram:
    def model(n, y=None):
        gate = pyro.sample("gate", dist.Beta(1.0, 1.0))
        rate = pyro.sample("rate", dist.LogNormal(1.0, 1.0))
        with pyro.plate("data", n):
            pyro.sample("y", dist.ZeroInflatedPoisson(rate, gate=gate), obs=y)

    y = torch.poisson(torch.full((50,), 4.0), random(0))
    y[:15] = 0
    return UsersProgram(model, {"n": 50, "y": y})


def horseshoe() -> UsersProgram:
    def model(x, y=None):
        d = x.shape[1]
        tau = pyro.sample("tau", dist.HalfCauchy(1.0))
        lam = pyro.sample("lam", dist.HalfCauchy(torch.ones(d)).to_event(1))
        raw = pyro.sample("raw", dist.Normal(torch.zeros(d), 1.0).to_event(1))
        beta = pyro.deterministic("beta", tau * lam * raw)
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)

    x = normal(0, 40, 5)
    return UsersProgram(model, {"x": x, "y": 2 * x[:, 0] + 0.5 * normal(1, 40)})


def ordinal_regression() -> UsersProgram:
    def model(x, y=None):
        slope = pyro.sample("slope", dist.Normal(0.0, 2.0))
        first = pyro.sample("first", dist.Normal(-1.0, 1.0))
        gap = pyro.sample("gap", dist.LogNormal(0.0, 0.5))
        cutpoints = torch.stack([first, first + gap], -1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.OrderedLogistic(slope * x, cutpoints), obs=y)

    x = normal(0, 50)
    z = x + normal(1, 50)
    return UsersProgram(model, {"x": x, "y": (z > -0.7).long() + (z > 0.7).long()})


def two_outcomes() -> UsersProgram:
    def model(x, y=None):
        scales = pyro.sample("scales", dist.HalfNormal(torch.ones(2)).to_event(1))
        L = pyro.sample("L", dist.LKJCholesky(2, 2.0))
        slopes = pyro.sample("slopes", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            law = dist.MultivariateNormal(x[:, None] * slopes, scale_tril=scales.unsqueeze(-1) * L)
            pyro.sample("y", law, obs=y)

    x = normal(0, 30)
    noise = normal(1, 30, 2) @ torch.tensor([[1.0, 0.5], [0.0, 0.5]])
    return UsersProgram(model, {"x": x, "y": x[:, None] * torch.tensor([1.0, -1.0]) + noise})


def survival_with_censoring() -> UsersProgram:
    def model(x, time, event):
        intercept = pyro.sample("intercept", dist.Normal(0.0, 2.0))
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        rate = (intercept + slope * x).exp()
        with pyro.plate("patients", len(x)):
            with handlers.mask(mask=event):
                pyro.sample("death", dist.Exponential(rate), obs=time)
            with handlers.mask(mask=~event):
                pyro.factor("censored", -rate * time)

    x = normal(0, 40)
    with drawn_with(2):
        time = dist.Exponential((0.5 * x).exp()).sample()
    arguments = {"x": x, "time": time.clamp(max=1.5), "event": time < 1.5}
    return UsersProgram(model, arguments, ())


# -- levels and groups -----------------------------------------------------------------------------

SCHOOLS = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(sigma, y=None):
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("J", len(sigma)):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


def schools_centred() -> UsersProgram:
    return UsersProgram(eight_schools, {"sigma": SIGMA, "y": SCHOOLS})


def schools_reparametrised() -> UsersProgram:
    model = handlers.reparam(eight_schools, config={"theta": LocScaleReparam(0.0)})

    def schools(sigma, y=None):
        return model(sigma, y)

    return UsersProgram(schools, {"sigma": SIGMA, "y": SCHOOLS})


def batting_averages() -> UsersProgram:
    def model(at_bats, hits=None):
        m = pyro.sample("m", dist.Uniform(0.0, 1.0))
        kappa = pyro.sample("kappa", dist.Pareto(1.0, 1.5))
        with pyro.plate("players", len(at_bats)):
            phi = pyro.sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
            pyro.sample("hits", dist.Binomial(at_bats, probs=phi), obs=hits)

    at_bats = torch.full((12,), 45.0)
    hits = torch.tensor([18.0, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 7])
    return UsersProgram(model, {"at_bats": at_bats, "hits": hits}, ("hits",))


def varying_slopes() -> UsersProgram:
    def model(group, x, y=None):
        centre = pyro.sample("centre", dist.Normal(torch.zeros(2), 2.0).to_event(1))
        scale = pyro.sample("scale", dist.HalfNormal(torch.ones(2)).to_event(1))
        L = pyro.sample("L", dist.LKJCholesky(2, 2.0))
        with pyro.plate("groups", 5):
            effect = pyro.sample(
                "effect",
                dist.MultivariateNormal(centre, scale_tril=scale.unsqueeze(-1) * L),
            )
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        with pyro.plate("data", len(x)):
            mean = effect[..., group, 0] + effect[..., group, 1] * x
            pyro.sample("y", dist.Normal(mean, sigma), obs=y)

    group, x = torch.arange(50) % 5, normal(0, 50)
    y = normal(1, 5)[group] + (1 + 0.5 * normal(2, 5)[group]) * x + 0.5 * normal(3, 50)
    return UsersProgram(model, {"group": group, "x": x, "y": y})


def item_response() -> UsersProgram:
    def model(student, item, y=None):
        with pyro.plate("students", 12):
            ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        spread = pyro.sample("spread", dist.HalfNormal(1.0))
        with pyro.plate("items", 6):
            difficulty = pyro.sample("difficulty", dist.Normal(0.0, spread))
        with pyro.plate("answers", len(student)):
            logits = ability[..., student] - difficulty[..., item]
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    student, item = (i.reshape(-1) for i in torch.meshgrid(torch.arange(12), torch.arange(6)))
    logits = normal(0, 12)[student] - normal(1, 6)[item]
    y = (torch.rand(72, generator=random(2)) < logits.sigmoid()).float()
    return UsersProgram(model, {"student": student, "item": item, "y": y})


def crossed_plates() -> UsersProgram:
    def model(shape, y=None):
        rows = pyro.plate("rows", shape[0], dim=-2)
        columns = pyro.plate("columns", shape[1], dim=-1)
        with rows:
            a = pyro.sample("a", dist.Normal(0.0, 1.0))
        with columns:
            b = pyro.sample("b", dist.Normal(0.0, 1.0))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        with rows, columns:
            pyro.sample("y", dist.Normal(a + b, sigma), obs=y)

    y = normal(0, 4, 1) + normal(1, 1, 5) + 0.5 * normal(2, 4, 5)
    return UsersProgram(model, {"shape": (4, 5), "y": y})


def shares_of_categories() -> UsersProgram:
    def model(total, y=None):
        p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
        concentration = pyro.sample("concentration", dist.LogNormal(2.0, 1.0))
        with pyro.plate("polls", 6):
            law = dist.DirichletMultinomial(concentration * p, total_count=total)
            pyro.sample("y", law, obs=y)

    with drawn_with(0):
        y = dist.Multinomial(50, torch.tensor([0.5, 0.3, 0.2])).sample(torch.Size([6]))
    return UsersProgram(model, {"total": 50, "y": y})


# -- discrete sites --------------------------------------------------------------------------------


def gaussian_mixture() -> UsersProgram:
    def model(data):
        weights = pyro.sample("weights", dist.Dirichlet(0.5 * torch.ones(2)))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 2.0))
        with pyro.plate("components", 2):
            locs = pyro.sample("locs", dist.Normal(0.0, 10.0))
        with pyro.plate("data", len(data)):
            z = pyro.sample("z", dist.Categorical(weights), infer=infer_parallel)
            pyro.sample("obs", dist.Normal(locs[z], scale), obs=data)

    data = torch.tensor([0.0, 1.0, 10.0, 11.0, 12.0, 0.5, 1.5, 10.5])
    return UsersProgram(model, {"data": data}, ("data",))


def annotators() -> UsersProgram:
    """Labels of several raters, whose truth is not known (Dawid & Skene)."""

    def model(ratings):
        n, k = ratings.shape
        pi = pyro.sample("pi", dist.Dirichlet(torch.ones(2)))
        with pyro.plate("raters", k, dim=-1):
            right = pyro.sample("right", dist.Beta(8.0, 2.0))
        with pyro.plate("items", n, dim=-2):
            truth = pyro.sample("truth", dist.Categorical(pi), infer=infer_parallel)
            with pyro.plate("each", k, dim=-1):
                p = torch.where(truth == 1, right, 1 - right)
                pyro.sample("ratings", dist.Bernoulli(p), obs=ratings)

    truth = (torch.arange(20) % 3 == 0).float()[:, None]
    wrong = (torch.rand(20, 4, generator=random(0)) < 0.15).float()
    return UsersProgram(model, {"ratings": (truth - wrong).abs()}, ("ratings",))


def change_point() -> UsersProgram:
    def model(counts):
        early = pyro.sample("early", dist.Gamma(2.0, 0.5))
        late = pyro.sample("late", dist.Gamma(2.0, 0.5))
        n = len(counts)
        at = pyro.sample("at", dist.Categorical(torch.ones(n)), infer=infer_parallel)
        rate = torch.where(torch.arange(n) < at.unsqueeze(-1), early, late)
        pyro.sample("counts", dist.Poisson(rate).to_event(1), obs=counts)

    counts = torch.tensor([4.0, 5, 3, 6, 4, 5, 1, 0, 2, 1, 1, 0])
    return UsersProgram(model, {"counts": counts}, ("counts",))


def hidden_markov_model() -> UsersProgram:
    def model(y):
        with pyro.plate("states", 2):
            transition = pyro.sample("transition", dist.Dirichlet(1.0 + 2.0 * torch.eye(2)))
            loc = pyro.sample("loc", dist.Normal(0.0, 3.0))
        z = None
        for t in pyro.markov(range(len(y))):
            probs = torch.ones(2) / 2 if z is None else transition[z]
            z = pyro.sample(f"z_{t}", dist.Categorical(probs), infer=infer_parallel)
            pyro.sample(f"y_{t}", dist.Normal(loc[z], 0.5), obs=y[t])

    states = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1])
    return UsersProgram(model, {"y": 3.0 * states + 0.5 * normal(0, 12)})


def hidden_markov_sequences() -> UsersProgram:
    """Several sequences of different lengths, with masks."""

    def model(sequences, lengths):
        n, longest = sequences.shape
        stay = pyro.sample("stay", dist.Beta(4.0, 1.0))
        p = pyro.sample("p", dist.Beta(torch.tensor([1.0, 4.0]), 3.0).to_event(1))
        table = torch.stack([torch.stack([stay, 1 - stay]), torch.stack([1 - stay, stay])])
        with pyro.plate("sequences", n):
            z = 0
            for t in pyro.markov(range(longest)):
                with handlers.mask(mask=t < lengths):
                    z = pyro.sample(f"z_{t}", dist.Categorical(table[z]), infer=infer_parallel)
                    pyro.sample(f"y_{t}", dist.Bernoulli(p[z]), obs=sequences[:, t])

    sequences = (torch.rand(5, 6, generator=random(0)) < 0.5).float()
    lengths = torch.tensor([6, 5, 6, 3, 4])
    return UsersProgram(model, {"sequences": sequences, "lengths": lengths}, ("sequences",))


def autoregressive_emission() -> UsersProgram:
    def model(y):
        stay = pyro.sample("stay", dist.Beta(4.0, 1.0))
        phi = pyro.sample("phi", dist.Normal(torch.zeros(2), 0.5).to_event(1))
        table = torch.stack([torch.stack([stay, 1 - stay]), torch.stack([1 - stay, stay])])
        z, before = 0, torch.tensor(0.0)
        for t in pyro.markov(range(len(y))):
            z = pyro.sample(f"z_{t}", dist.Categorical(table[z]), infer=infer_parallel)
            pyro.sample(f"y_{t}", dist.Normal(phi[z] * before, 1.0), obs=y[t])
            before = y[t]

    return UsersProgram(model, {"y": normal(0, 10)})


def factorial_hidden_markov_model() -> UsersProgram:
    def model(y):
        stay = pyro.sample("stay", dist.Beta(torch.tensor([4.0, 4.0]), 1.0).to_event(1))
        size = pyro.sample("size", dist.Normal(torch.tensor([1.0, 3.0]), 1.0).to_event(1))
        w = x = torch.tensor(0.0)
        for t in pyro.markov(range(len(y))):
            p = torch.where(w > 0, stay[0], 1 - stay[0])
            q = torch.where(x > 0, stay[1], 1 - stay[1])
            w = pyro.sample(f"w_{t}", dist.Bernoulli(p), infer=infer_parallel)
            x = pyro.sample(f"x_{t}", dist.Bernoulli(q), infer=infer_parallel)
            pyro.sample(f"y_{t}", dist.Normal(size[0] * w + size[1] * x, 0.5), obs=y[t])

    y = torch.tensor([0.1, 1.2, 4.1, 3.9, 3.0, 2.8, 0.2, 0.9])
    return UsersProgram(model, {"y": y})


def neural_emission() -> UsersProgram:
    with drawn_with(0):
        network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))

    def model(y):
        emission = pyro.module("emission", network)
        stay = pyro.sample("stay", dist.Beta(4.0, 1.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
        table = torch.stack([torch.stack([stay, 1 - stay]), torch.stack([1 - stay, stay])])
        means = emission(torch.eye(2)).squeeze(-1)
        z = 0
        for t in pyro.markov(range(len(y))):
            z = pyro.sample(f"z_{t}", dist.Categorical(table[z]), infer=infer_parallel)
            pyro.sample(f"y_{t}", dist.Normal(means[z], scale), obs=y[t])

    return UsersProgram(model, {"y": torch.tensor([1.0, 1.2, 0.8, -1.0, -1.2, -0.9, 1.1, 1.0])})


def capture_recapture() -> UsersProgram:
    """Cormack-Jolly-Seber: an animal is alive or not, and seen or not."""

    def model(captures):
        n, occasions = captures.shape
        phi = pyro.sample("phi", dist.Uniform(0.0, 1.0))
        rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
        with pyro.plate("animals", n):
            z = torch.ones(n)
            seen = torch.zeros(n).bool()
            for t in pyro.markov(range(occasions)):
                with handlers.mask(mask=seen):
                    z = pyro.sample(
                        f"z_{t}",
                        dist.Bernoulli(torch.where(seen, phi * z, torch.ones(()))),
                        infer=infer_parallel,
                    )
                    pyro.sample(f"y_{t}", dist.Bernoulli(rho * z), obs=captures[:, t])
                seen = seen | captures[:, t].bool()

    captures = torch.tensor(
        [[1, 1, 0, 1], [1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 0], [0, 1, 0, 0], [1, 0, 1, 1]]
    ).float()
    return UsersProgram(model, {"captures": captures}, ("captures",))


def topics() -> UsersProgram:
    def model(words):
        length, documents = words.shape
        with pyro.plate("topics", 2):
            topic = pyro.sample("topic", dist.Dirichlet(torch.ones(4)))
        with pyro.plate("documents", documents):
            share = pyro.sample("share", dist.Dirichlet(torch.ones(2)))
            with pyro.plate("words", length):
                z = pyro.sample("z", dist.Categorical(share), infer=infer_parallel)
                pyro.sample("word", dist.Categorical(topic[z]), obs=words)

    words = torch.tensor([[0, 2, 0], [1, 3, 2], [0, 2, 1], [0, 3, 3], [1, 2, 0]])
    return UsersProgram(model, {"words": words}, ("words",))


def marginalised_mixture() -> UsersProgram:
    def model(n, y=None):
        weight = pyro.sample("weight", dist.Beta(2.0, 2.0))
        locs = pyro.sample("locs", dist.Normal(torch.tensor([-2.0, 2.0]), 1.0).to_event(1))
        law = dist.MixtureSameFamily(
            dist.Categorical(torch.stack([weight, 1 - weight], -1)), dist.Normal(locs, 0.7)
        )
        with pyro.plate("data", n):
            pyro.sample("y", law, obs=y)

    return UsersProgram(model, {"n": 20, "y": 2 * normal(0, 20).sign() + 0.7 * normal(1, 20)})


# -- series ----------------------------------------------------------------------------------------


def autoregression_in_a_loop() -> UsersProgram:
    def model(y):
        phi = pyro.sample("phi", dist.Normal(0.0, 1.0))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        for t in range(1, len(y)):
            pyro.sample(f"y_{t}", dist.Normal(phi * y[t - 1], sigma), obs=y[t])

    return UsersProgram(model, {"y": normal(0, 15).cumsum(0)})


def stochastic_volatility() -> UsersProgram:
    def model(returns):
        sigma = pyro.sample("sigma", dist.Exponential(5.0))
        nu = pyro.sample("nu", dist.Exponential(0.1))
        steps = pyro.sample("steps", dist.Normal(torch.zeros(len(returns)), 1.0).to_event(1))
        volatility = (sigma * steps).cumsum(-1).exp()
        with pyro.plate("time", len(returns)):
            pyro.sample("r", dist.StudentT(2.0 + nu, 0.0, volatility), obs=returns)

    return UsersProgram(model, {"returns": normal(0, 20)}, ("returns",))


def local_level() -> UsersProgram:
    def model(y):
        drift = pyro.sample("drift", dist.LogNormal(-1.0, 0.5))
        noise = pyro.sample("noise", dist.LogNormal(-1.0, 0.5))
        level = torch.tensor(0.0)
        for t in range(len(y)):
            level = pyro.sample(f"level_{t}", dist.Normal(level, drift))
            pyro.sample(f"y_{t}", dist.Normal(level, noise), obs=y[t])

    return UsersProgram(model, {"y": 0.4 * normal(0, 8).cumsum(0) + 0.3 * normal(1, 8)})


def autoregression_by_scan() -> UsersProgram:
    def model(y):
        phi = pyro.sample("phi", dist.Normal(torch.zeros(2), 0.5).to_event(1))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))

        def step(carry, value):
            mean = (phi * carry).sum(-1)
            return torch.stack([value, carry[0]]), mean

        _, means = ppgp.scan(step, y[:2].flip(0), y[2:])
        with pyro.plate("time", len(y) - 2):
            pyro.sample("next", dist.Normal(means, sigma), obs=y[2:])

    y = normal(0, 20)
    for t in range(1, 20):
        y[t] += 0.6 * y[t - 1]
    return UsersProgram(model, {"y": y})


def exponential_smoothing() -> UsersProgram:
    def model(y):
        alpha = pyro.sample("alpha", dist.Beta(2.0, 2.0))
        beta = pyro.sample("beta", dist.Beta(1.0, 3.0))
        start = pyro.sample("start", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))

        def step(carry, value):
            level, trend = carry
            mean = level + trend
            new = alpha * value + (1 - alpha) * mean
            return (new, beta * (new - level) + (1 - beta) * trend), mean

        _, means = ppgp.scan(step, (start[0], start[1]), y)
        with pyro.plate("time", len(y)):
            pyro.sample("y", dist.Normal(means, sigma), obs=y)

    return UsersProgram(model, {"y": 0.3 * torch.arange(16.0) + 0.5 * normal(0, 16)})


def gaussian_hmm() -> UsersProgram:
    def model(y):
        decay = pyro.sample("decay", dist.Beta(5.0, 1.0))
        noise = pyro.sample("noise", dist.LogNormal(-1.0, 0.5))
        one = torch.eye(1)
        law = dist.GaussianHMM(
            dist.Normal(torch.zeros(1), 1.0).to_event(1),
            decay * one,
            dist.Normal(torch.zeros(1), 0.5).to_event(1),
            one,
            dist.Normal(torch.zeros(1), noise.unsqueeze(-1)).to_event(1),
            duration=len(y),
        )
        pyro.sample("y", law, obs=y)

    return UsersProgram(model, {"y": normal(0, 15, 1)})


def discrete_hmm() -> UsersProgram:
    def model(y):
        stay = pyro.sample("stay", dist.Beta(4.0, 1.0))
        loc = pyro.sample("loc", dist.Normal(torch.tensor([0.0, 3.0]), 1.0).to_event(1))
        table = torch.stack([torch.stack([stay, 1 - stay]), torch.stack([1 - stay, stay])])
        law = dist.DiscreteHMM(torch.zeros(2), table.log(), dist.Normal(loc, 0.5))
        pyro.sample("y", law, obs=y)

    states = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0, 0, 0])
    return UsersProgram(model, {"y": 3.0 * states + 0.5 * normal(0, 10)})


def hidden_markov_by_scan() -> UsersProgram:
    """Three series of one chain; the states are summed out."""

    def model(y=None):
        stay = pyro.sample("stay", dist.Beta(6.0, 2.0).expand([2]).to_event(1))
        low = pyro.sample("low", dist.Normal(0.0, 1.0))
        gap = pyro.sample("gap", dist.LogNormal(1.0, 0.3))
        with pyro.plate("series", 3):

            def step(z, seen):
                up = torch.where(z == 1, stay[1], 1 - stay[0])
                z = pyro.sample("z", dist.Bernoulli(up))
                pyro.sample("y", dist.Normal(low + gap * z, 0.7), obs=seen)
                return z, None

            ppgp.scan(step, torch.zeros(3), y, length=12)

    states = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0])
    return UsersProgram(model, {"y": 3.0 * states[:, None] + 0.7 * normal(0, 12, 3)})


def epidemic() -> UsersProgram:
    """Susceptible, infected, recovered: expected flows, and counts about them."""

    def model(cases, population):
        rate = pyro.sample("rate", dist.LogNormal(0.0, 0.5))
        recovery = pyro.sample("recovery", dist.Beta(2.0, 4.0))
        S, infected = torch.tensor(population - 2.0), torch.tensor(2.0)
        for t in range(len(cases)):
            new = S * (1 - (-rate * infected / population).exp())
            S, infected = S - new, infected + new - recovery * infected
            pyro.sample(f"cases_{t}", dist.Poisson(new), obs=cases[t])

    cases = torch.tensor([2.0, 3, 6, 9, 14, 16, 15, 10, 7, 4])
    return UsersProgram(model, {"cases": cases, "population": 100.0}, ("cases",))


def predator_and_prey() -> UsersProgram:
    def model(y):
        theta = pyro.sample(
            "theta", dist.LogNormal(torch.tensor([-0.6, -3.6, -0.2, -3.7]), 0.3).to_event(1)
        )
        sigma = pyro.sample("sigma", dist.LogNormal(-1.0, 0.5))
        prey, predator = y[0, 0], y[0, 1]
        states = []
        for _ in range(10 * (len(y) - 1)):
            growth = (theta[0] - theta[1] * predator) * prey
            decline = (-theta[2] + theta[3] * prey) * predator
            prey, predator = prey + 0.1 * growth, predator + 0.1 * decline
            states.append(torch.stack([prey, predator]))
        path = torch.stack(states)[9::10].clamp_min(1e-3)
        with pyro.plate("years", len(y) - 1):
            pyro.sample("z", dist.LogNormal(path.log(), sigma).to_event(1), obs=y[1:])

    y = torch.tensor(
        [[30.0, 4.0], [47.2, 6.1], [70.2, 9.8], [77.4, 35.2], [36.3, 59.4], [20.6, 41.7]]
    )
    return UsersProgram(model, {"y": y})


class Trend(ForecastingModel):
    """A linear trend in the manner of ``pyro.contrib.forecast``."""

    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        bias = pyro.sample("bias", dist.Normal(0.0, 3.0))
        weight = pyro.sample("weight", dist.Normal(0.0, 1.0))
        scale = pyro.sample("scale", dist.LogNormal(-1.0, 1.0))
        self.predict(dist.Normal(0.0, scale), bias + weight * covariates)


def forecasting_model() -> UsersProgram:
    covariates = torch.linspace(-1, 1, 20)[:, None]
    data = 1 + 2 * covariates + 0.3 * normal(0, 20, 1)
    return UsersProgram(Trend(), {"data": data, "covariates": covariates}, ("data",))


# -- processes, networks and other parts -----------------------------------------------------------


def gp_points(n: int = 20) -> tuple[Tensor, Tensor]:
    x = torch.linspace(0, 1, n)
    return x, torch.sin(6 * x) + 0.2 * normal(0, n)


def gp_regression() -> UsersProgram:
    x, y = gp_points()
    kernel = gp.kernels.RBF(1)
    kernel.variance = PyroSample(dist.LogNormal(0.0, 1.0))
    kernel.lengthscale = PyroSample(dist.LogNormal(-1.0, 1.0))
    module = gp.models.GPRegression(x, y, kernel, noise=torch.tensor(0.1))
    return UsersProgram(module.model, {}, ())


def sparse_gp_regression() -> UsersProgram:
    x, y = gp_points()
    kernel = gp.kernels.Matern52(1)
    kernel.lengthscale = PyroSample(dist.LogNormal(-1.0, 1.0))
    module = gp.models.SparseGPRegression(
        x, y, kernel, Xu=torch.linspace(0, 1, 5), noise=torch.tensor(0.1)
    )
    return UsersProgram(module.model, {}, ())


def variational_gp() -> UsersProgram:
    x, y = gp_points()
    kernel = gp.kernels.RBF(1, lengthscale=torch.tensor(0.3))
    module = gp.models.VariationalGP(
        x, (y > 0).float(), kernel, gp.likelihoods.Binary(), whiten=True, jitter=1e-4
    )
    return UsersProgram(module.model, {}, (), module.guide)


def latent_variables_of_a_gp() -> UsersProgram:
    with drawn_with(0):
        y = torch.stack([normal(0, 12), normal(1, 12)])
        kernel = gp.kernels.RBF(1, lengthscale=torch.ones(1))
        start = normal(2, 12, 1)
        inducing = start[:4].clone()
        sparse = gp.models.SparseGPRegression(start, y, kernel, inducing, jitter=1e-3)
        sparse.X = PyroSample(dist.Normal(start, 0.3).to_event())
    return UsersProgram(sparse.model, {}, ())


def written_gp() -> UsersProgram:
    def model(X, Y):
        variance = pyro.sample("variance", dist.LogNormal(0.0, 1.0))
        length = pyro.sample("length", dist.LogNormal(-1.0, 1.0))
        noise = pyro.sample("noise", dist.LogNormal(-2.0, 1.0))
        distance = ((X[:, None] - X) / length) ** 2
        K = variance * torch.exp(-0.5 * distance) + (noise + 1e-4) * torch.eye(len(X))
        law = dist.MultivariateNormal(torch.zeros(len(X)), covariance_matrix=K)
        pyro.sample("Y", law, obs=Y)

    x, y = gp_points()
    return UsersProgram(model, {"X": x, "Y": y}, ("Y",))


class BayesianLinear(PyroModule):
    """A layer whose weights are sites, and whose scale is a param."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[nn.Linear](2, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 3.0).expand([1]).to_event(1))
        self.scale = PyroParam(torch.tensor(0.5), constraint=constraints.positive)

    def forward(self, x, y=None):
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", x.shape[0]):
            pyro.sample("y", dist.Normal(mean, self.scale), obs=y)
        return mean


def module_with_sites_and_params() -> UsersProgram:
    x = normal(0, 30, 2)
    y = x[:, 0] - x[:, 1] + 0.5 * normal(1, 30)
    with drawn_with(0):
        return UsersProgram(BayesianLinear(), {"x": x, "y": y})


class SmallNetwork(PyroModule):
    """A Bayesian network of one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = PyroModule[nn.Linear](1, 3)
        self.first.weight = PyroSample(dist.Normal(0.0, 1.0).expand([3, 1]).to_event(2))
        self.first.bias = PyroSample(dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        self.second = PyroModule[nn.Linear](3, 1)
        self.second.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
        self.second.bias = PyroSample(dist.Normal(0.0, 1.0).expand([1]).to_event(1))

    def forward(self, x, y=None):
        mean = self.second(torch.tanh(self.first(x))).squeeze(-1)
        sigma = pyro.sample("sigma", dist.Gamma(2.0, 4.0))
        with pyro.plate("data", x.shape[0]):
            pyro.sample("y", dist.Normal(mean, sigma), obs=y)


def bayesian_network() -> UsersProgram:
    x = torch.linspace(-2, 2, 25)[:, None]
    with drawn_with(0):
        network = SmallNetwork()
    return UsersProgram(network, {"x": x, "y": torch.sin(x[:, 0]) + 0.2 * normal(0, 25)})


def network_of_torch() -> UsersProgram:
    with drawn_with(0):
        network = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def model(x, y=None):
        f = pyro.module("network", network)
        sigma = pyro.sample("sigma", dist.LogNormal(-1.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f(x).squeeze(-1), sigma), obs=y)

    x = torch.linspace(-2, 2, 20)[:, None]
    return UsersProgram(model, {"x": x, "y": torch.sin(x[:, 0]) + 0.2 * normal(0, 20)})


def autoencoder() -> UsersProgram:
    """The decoder of a variational autoencoder, whose code of each row is a site."""
    with drawn_with(0):
        decoder = nn.Sequential(nn.Linear(1, 3), nn.Softplus(), nn.Linear(3, 4))

    def model(y):
        decode = pyro.module("decoder", decoder)
        with pyro.plate("data", y.shape[0]):
            z = pyro.sample("z", dist.Normal(torch.zeros(1), 1.0).to_event(1))
            pyro.sample("y", dist.Bernoulli(logits=decode(z)).to_event(1), obs=y)

    return UsersProgram(model, {"y": (normal(0, 10, 4) > 0).float()})


def params_alone() -> UsersProgram:
    """Maximum likelihood: no site is latent."""

    def model(x, y):
        slope = pyro.param("slope", torch.tensor(0.0))
        scale = pyro.param("scale", torch.tensor(1.0), constraint=constraints.positive)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(slope * x, scale), obs=y)

    x = normal(0, 30)
    return UsersProgram(model, {"x": x, "y": 2 * x + 0.5 * normal(1, 30)})


def conditioned_program() -> UsersProgram:
    def measured(n):
        weight = pyro.sample("weight", dist.Normal(8.5, 1.0))
        with pyro.plate("scales", n):
            return pyro.sample("measurement", dist.Normal(weight, 0.75))

    data = torch.tensor([9.5, 9.1, 9.7])
    model = pyro.condition(measured, data={"measurement": data})

    def conditioned(n):
        return model(n)

    return UsersProgram(conditioned, {"n": 3}, ())


def hidden_site() -> UsersProgram:
    """A nuisance parameter that ``block`` hides is drawn at each run: the density is random."""

    def model(y):
        mu = pyro.sample("mu", dist.Normal(0.0, 2.0))
        with handlers.block(hide=["hidden"]):
            pyro.sample("hidden", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    return UsersProgram(model, {"y": normal(0, 10) + 1})


def factor_and_deterministic() -> UsersProgram:
    def model(y):
        a = pyro.sample("a", dist.Normal(0.0, 2.0))
        b = pyro.sample("b", dist.Normal(0.0, 2.0))
        total = pyro.deterministic("total", a + b)
        pyro.factor("close", -((a - b) ** 2))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(total, 1.0), obs=y)

    return UsersProgram(model, {"y": normal(0, 10) + 2})


def scaled_prior() -> UsersProgram:
    def model(x, y=None):
        with handlers.scale(scale=0.1):
            w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)

    x = normal(0, 20, 2)
    return UsersProgram(model, {"x": x, "y": x[:, 0] + 0.5 * normal(1, 20)})


def weighted_rows() -> UsersProgram:
    def model(x, weight, y=None):
        slope = pyro.sample("slope", dist.Normal(0.0, 2.0))
        with pyro.plate("data", len(x)), handlers.scale(scale=weight):
            pyro.sample("y", dist.Normal(slope * x, 0.5), obs=y)

    x = normal(0, 20)
    weight = 1 + torch.arange(20.0) % 3
    return UsersProgram(model, {"x": x, "weight": weight, "y": x + 0.5 * normal(1, 20)})


def subsampled_plate() -> UsersProgram:
    def model(x, y=None):
        slope = pyro.sample("slope", dist.Normal(0.0, 2.0))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        with pyro.plate("data", len(x), subsample_size=10) as rows:
            seen = None if y is None else y[rows]
            pyro.sample("y", dist.Normal(slope * x[rows], sigma), obs=seen)

    x = normal(0, 40)
    return UsersProgram(model, {"x": x, "y": x + 0.5 * normal(1, 40)})


def missing_observations() -> UsersProgram:
    def model(x, y, seen):
        slope = pyro.sample("slope", dist.Normal(0.0, 2.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(slope * x, 0.5), obs=y, obs_mask=seen)

    x = normal(0, 12)
    return UsersProgram(model, {"x": x, "y": x + 0.5 * normal(1, 12), "seen": x < 1}, ("y", "seen"))


def masked_missing_numbers() -> UsersProgram:
    def model(x, y):
        slope = pyro.sample("slope", dist.Normal(0.0, 2.0))
        missing = y.isnan()
        with pyro.plate("data", len(x)), handlers.mask(mask=~missing):
            pyro.sample("y", dist.Normal(slope * x, 0.5), obs=torch.nan_to_num(y))

    x = normal(0, 12)
    y = x + 0.5 * normal(1, 12)
    y[3] = torch.nan
    return UsersProgram(model, {"x": x, "y": y})


def imputed_covariate() -> UsersProgram:
    def model(age, survived=None):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        missing = age.isnan()
        imputed = pyro.sample(
            "imputed", dist.Normal(mu, 1.0).expand([int(missing.sum())]).to_event(1)
        )
        filled = age.clone().masked_scatter(missing, imputed)
        pyro.sample("age", dist.Normal(mu, 1.0).expand([len(age)]).to_event(1), obs=filled)
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(age)):
            pyro.sample("survived", dist.Bernoulli(logits=slope * filled), obs=survived)

    age = normal(0, 15)
    survived = (age + normal(1, 15) > 0).float()
    age[:2] = torch.nan
    return UsersProgram(model, {"age": age, "survived": survived}, ("survived",))


def stable_observations() -> UsersProgram:
    def observed(y):
        stability = pyro.sample("stability", dist.Uniform(1.2, 2.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Stable(stability, 0.0, scale, 0.0), obs=y)

    program = handlers.reparam(observed, config={"y": StableReparam()})

    def model(y):
        return program(y)

    return UsersProgram(model, {"y": normal(0, 8)})


def stable_latent() -> UsersProgram:
    def drift(y):
        scale = pyro.sample("scale", dist.LogNormal(-1.0, 0.5))
        jump = pyro.sample("jump", dist.Stable(1.8, 0.0, scale, 0.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(jump, 1.0), obs=y)

    program = handlers.reparam(drift, config={"jump": LatentStableReparam()})

    def model(y):
        return program(y)

    return UsersProgram(model, {"y": normal(0, 8) + 1})


def funnel() -> UsersProgram:
    """Neal's funnel: there are no data."""

    def model():
        y = pyro.sample("y", dist.Normal(0.0, 3.0))
        pyro.sample("x", dist.Normal(torch.zeros(2), (y / 2).exp()).to_event(1))

    return UsersProgram(model, {}, ())


def branches_on_a_value() -> UsersProgram:
    def model(data):
        bias = pyro.sample("bias", dist.Beta(2.0, 2.0))
        p = bias if bias.item() > 0.5 else bias**2
        with pyro.plate("tosses", len(data)):
            pyro.sample("y", dist.Bernoulli(p), obs=data)

    return UsersProgram(model, {"data": torch.tensor([1.0, 1, 0, 1, 1, 1, 0, 1])}, ("data",))


def network_for_a_scale() -> UsersProgram:
    """Heteroscedastic: a param of a softplus gives each row its scale."""

    def model(x, y=None):
        slope = pyro.sample("slope", dist.Normal(0.0, 2.0))
        c = pyro.sample("c", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(slope * x, softplus(c[0] + c[1] * x) + 0.05), obs=y)

    x = normal(0, 40)
    return UsersProgram(model, {"x": x, "y": x + softplus(x) * 0.5 * normal(1, 40)})


# -- functions without labels ----------------------------------------------------------------------

Draws = Mapping[str, Tensor]  # {site: [chain, draw, *event]}


def components_in_order(draws: Draws) -> dict[str, Tensor]:
    """Return the draws of ``gaussian_mixture`` with the components in the order of their means."""
    locs, weights = (draws[name].flatten(2) for name in ("locs", "weights"))
    order = locs.argsort(-1)
    return {
        "locs": locs.gather(-1, order),
        "weights": weights.gather(-1, order),
        "scale": draws["scale"],
    }


def topics_in_order(draws: Draws) -> dict[str, Tensor]:
    """Return the draws of ``topics`` with the topics in the order of their first word."""
    lead = draws["topic"].shape[:2]
    topic, share = draws["topic"].reshape(*lead, 2, 4), draws["share"].reshape(*lead, -1, 2)
    order = topic[..., 0].argsort(-1)
    return {
        "topic": topic.gather(-2, order[..., None].expand_as(topic)),
        "share": share.gather(-1, order[..., None, :].expand_as(share)),
    }


def states_in_order(draws: Draws) -> dict[str, Tensor]:
    """Return the draws of ``hidden_markov_model`` with the states in the order of their means."""
    lead = draws["loc"].shape[:2]
    loc, transition = draws["loc"].reshape(*lead, 2), draws["transition"].reshape(*lead, 2, 2)
    order = loc.argsort(-1)
    rows = transition.gather(-2, order[..., None].expand_as(transition))
    return {
        "loc": loc.gather(-1, order),
        "transition": rows.gather(-1, order[..., None, :].expand_as(rows)),
    }


def function_of_a_network(draws: Draws) -> dict[str, Tensor]:
    """Return the values of the function that the draws of ``bayesian_network`` stand for."""
    lead = draws["sigma"].shape[:2]
    first = draws["first.weight"].reshape(*lead, 3), draws["first.bias"].reshape(*lead, 3)
    second = draws["second.weight"].reshape(*lead, 3), draws["second.bias"].reshape(*lead)
    x = torch.linspace(-2, 2, 5).double()[:, None]
    hidden = torch.tanh(x * first[0][..., None, :] + first[1][..., None, :])
    f = (hidden * second[0][..., None, :]).sum(-1) + second[1][..., None]
    return {"f": f, "sigma": draws["sigma"]}


def units_in_order(draws: Draws) -> dict[str, Tensor]:
    """Return the draws of ``bayesian_network`` with the units in order, each with the sign of y.

    The prior of the weights is symmetric, and tanh is odd.
    """
    second = draws["second.weight"]
    order = second.abs().argsort(-1)
    sign = second.sign().mT
    first = {
        "first.weight": (draws["first.weight"] * sign).gather(-2, order.mT),
        "first.bias": (draws["first.bias"] * sign[..., 0]).gather(-1, order[..., 0, :]),
    }
    return {**draws, **first, "second.weight": second.abs().gather(-1, order)}


#: {name: draws in an order of labels}, for programs whose labels can be exchanged: the density of
#: the draws stays the same
IN_ORDER: dict[str, Callable[[Draws], dict[str, Tensor]]] = {
    "gaussian_mixture": components_in_order,
    "topics": topics_in_order,
    "hidden_markov_model": states_in_order,
    "bayesian_network": units_in_order,
}
#: {name: what two samplers are compared by where labels can be exchanged}
LABEL_FREE: dict[str, Callable[[Draws], dict[str, Tensor]]] = {
    **IN_ORDER,
    "bayesian_network": function_of_a_network,
}
#: Programs that torch.jit.trace, which Pyro compiles by, makes others of: those whose statements
#: depend on values, and a GP of Pyro whose inputs are a site.
BRANCHES = frozenset({"branches_on_a_value", "latent_variables_of_a_gp"})

REGRESSION, LEVELS, DISCRETE = "regression", "groups", "discrete sites"
SERIES, PROCESS, MODULE, HANDLER = "series", "Gaussian process", "network", "handlers"
#: {name: (kind, a function that returns the program)}
PROGRAMS: dict[str, tuple[str, Callable[[], UsersProgram]]] = {
    make.__name__: (kind, make)
    for kind, several in {
        REGRESSION: (
            *(linear_regression, logistic_regression, poisson_regression, robust_regression),
            *(gamma_poisson_counts, zero_inflated_counts, horseshoe, ordinal_regression),
            *(two_outcomes, survival_with_censoring, network_for_a_scale),
        ),
        LEVELS: (
            *(schools_centred, schools_reparametrised, batting_averages, varying_slopes),
            *(item_response, crossed_plates, shares_of_categories),
        ),
        DISCRETE: (
            *(gaussian_mixture, annotators, change_point, hidden_markov_model),
            *(hidden_markov_sequences, autoregressive_emission, factorial_hidden_markov_model),
            *(neural_emission, capture_recapture, topics, marginalised_mixture),
        ),
        SERIES: (
            *(autoregression_in_a_loop, stochastic_volatility, local_level),
            *(autoregression_by_scan, exponential_smoothing, gaussian_hmm, discrete_hmm),
            *(hidden_markov_by_scan, epidemic, predator_and_prey, forecasting_model),
        ),
        PROCESS: (
            *(gp_regression, sparse_gp_regression, variational_gp, latent_variables_of_a_gp),
            written_gp,
        ),
        MODULE: (*(module_with_sites_and_params, bayesian_network, network_of_torch, autoencoder),),
        HANDLER: (
            *(params_alone, conditioned_program, hidden_site, factor_and_deterministic),
            *(scaled_prior, weighted_rows, subsampled_plate, missing_observations),
            *(masked_missing_numbers, imputed_covariate, stable_observations, stable_latent),
            *(funnel, branches_on_a_value),
        ),
    }.items()
    for make in several
}
