"""Small programs with discrete latent sites, of the kinds that users of Pyro write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate
from pyro.ops.indexing import Vindex
from pyro.poutine.util import site_is_subsample
from torch import Tensor

F64 = torch.float64


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def simplex(name: str, rows: int, k: int) -> Tensor:
    alpha = torch.ones(rows, k, dtype=F64) + torch.eye(rows, k, dtype=F64)
    return pyro.sample(name, dist.Dirichlet(alpha).to_event(1))


def centres(k: int) -> Tensor:
    return pyro.sample("centre", dist.Normal(torch.arange(k, dtype=F64), 1.0).to_event(1))


def mixture(y: Tensor) -> None:
    share = pyro.sample("share", dist.Dirichlet(torch.ones(3, dtype=F64)))
    centre = centres(3)
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Categorical(share))
        pyro.sample("y", dist.Normal(centre[z], 1.0), obs=y)


def global_and_local(y: Tensor) -> None:
    """A discrete site outside a plate, one inside, and two sites that depend on both."""
    p = pyro.sample("p", dist.Beta(number(2), number(3)))
    regime = pyro.sample("regime", dist.Bernoulli(p))
    with pyro.plate("rows", y.shape[-1], dim=-1):
        z = pyro.sample("z", dist.Categorical(torch.stack([p / 2, p / 2, 1 - p], -1)))
        with pyro.plate("repeats", y.shape[0], dim=-2):
            pyro.sample("y", dist.Normal(regime + 2 * z.to(F64), 1.0), obs=y)


def hidden_markov(y: Tensor) -> None:
    move, centre = simplex("move", 3, 3), centres(3)
    z: Any = 0
    for t in pyro.markov(range(len(y))):
        z = pyro.sample(f"z_{t}", dist.Categorical(move[z]))
        pyro.sample(f"y_{t}", dist.Normal(centre[z], 0.7), obs=y[t])


def second_order(y: Tensor) -> None:
    p = pyro.sample("p", dist.Beta(number(2), number(2)).expand([2, 2]).to_event(2))
    before, last = torch.tensor(0), torch.tensor(0)
    for t in pyro.markov(range(len(y)), history=2):
        z = pyro.sample(f"z_{t}", dist.Bernoulli(Vindex(p)[before, last])).long()
        before, last = last, z
        pyro.sample(f"y_{t}", dist.Normal(2.0 * z.to(F64), 1.0), obs=y[t])


def sequences(y: Tensor, lengths: Tensor) -> None:
    """Sequences of several lengths, each step with tones: plates inside a chain."""
    move = simplex("move", 2, 2)
    rate = pyro.sample("rate", dist.Beta(number(1), number(2)).expand([2, y.shape[-1]]).to_event(2))
    tones = pyro.plate("tones", y.shape[-1], dim=-1)
    with pyro.plate("sequences", len(y), dim=-2):
        z: Any = 0
        for t in pyro.markov(range(y.shape[1])):
            with poutine.mask(mask=(t < lengths)[:, None]):
                z = pyro.sample(f"z_{t}", dist.Categorical(move[z]))
                with tones as tone:
                    pyro.sample(f"y_{t}", dist.Bernoulli(Vindex(rate)[z, tone]), obs=y[:, t])


def factorial(y: Tensor) -> None:
    one, other = simplex("one", 2, 2), simplex("other", 3, 3)
    effect = pyro.sample("effect", dist.Normal(number(0), 1.0).expand([2, 3]).to_event(2))
    w: Any = 0
    x: Any = 0
    for t in pyro.markov(range(len(y))):
        w = pyro.sample(f"w_{t}", dist.Categorical(one[w]))
        x = pyro.sample(f"x_{t}", dist.Categorical(other[x]))
        pyro.sample(f"y_{t}", dist.Normal(Vindex(effect)[w, x], 1.0), obs=y[t])


def autoregressive(y: Tensor) -> None:
    move, centre = simplex("move", 2, 2), centres(2)
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2, dtype=F64), 0.5).to_event(1))
    z: Any = 0
    for t in pyro.markov(range(1, len(y))):
        z = pyro.sample(f"z_{t}", dist.Categorical(move[z]))
        pyro.sample(f"y_{t}", dist.Normal(centre[z] + slope[z] * y[t - 1], 0.7), obs=y[t])


def neural(y: Tensor) -> None:
    move = simplex("move", 2, 2)
    W = pyro.sample("W", dist.Normal(torch.zeros(3, 4, dtype=F64), 1.0).to_event(2))
    v = pyro.sample("v", dist.Normal(torch.zeros(4, dtype=F64), 1.0).to_event(1))
    z: Any = 0
    last = number(0.0)
    for t in pyro.markov(range(len(y))):
        z = pyro.sample(f"z_{t}", dist.Categorical(move[z]))
        code = torch.nn.functional.one_hot(torch.as_tensor(z), 2).to(F64)
        inputs = torch.cat([code, last.expand(*code.shape[:-1], 1)], -1)
        logit = ((inputs @ W).tanh() * v).sum(-1)
        pyro.sample(f"y_{t}", dist.Bernoulli(logits=logit), obs=y[t])
        last = y[t]


def capture_recapture(y: Tensor) -> None:
    """Cormack-Jolly-Seber: an animal that is seen once lives on, and is seen again, or is not."""
    survival = pyro.sample("survival", dist.Beta(number(4), number(2)))
    seen = pyro.sample("seen", dist.Beta(number(2), number(2)))
    with pyro.plate("animals", len(y)):
        alive = torch.zeros(len(y), dtype=F64)
        met = torch.zeros(len(y), dtype=torch.bool)
        for t in pyro.markov(range(y.shape[1])):
            with poutine.mask(mask=met):
                p = torch.where(met, survival * alive, 1.0)
                alive = pyro.sample(f"alive_{t}", dist.Bernoulli(p))
                pyro.sample(f"y_{t}", dist.Bernoulli(seen * alive), obs=y[:, t])
            met = met | y[:, t].bool()


def epidemic(y: Tensor) -> None:
    """Counts of the infected, summed out, in a population of four."""
    rate = pyro.sample("rate", dist.Beta(number(2), number(2)))
    report = pyro.sample("report", dist.Beta(number(3), number(2)))
    sick = torch.tensor(1.0, dtype=F64)
    states = torch.arange(5, dtype=F64)
    for t in pyro.markov(range(len(y))):
        p = 1 - (1 - rate) ** (1 + sick)
        law = dist.Binomial(4, p[..., None], validate_args=False).log_prob(states)
        sick = pyro.sample(f"sick_{t}", dist.Categorical(logits=law)).to(F64)
        pyro.sample(f"y_{t}", dist.Poisson(0.1 + 2 * report * sick), obs=y[t])


def scaled(y: Tensor) -> None:
    """Twenty rows stand for a hundred."""
    p = pyro.sample("p", dist.Beta(number(2), number(2)))
    gap = pyro.sample("gap", dist.LogNormal(number(0), number(1)))
    with pyro.plate("rows", len(y)), poutine.scale(scale=5.0):
        z = pyro.sample("z", dist.Bernoulli(p))
        pyro.sample("y", dist.Normal(gap * z, 1.0), obs=y)


def masked(y: Tensor, here: Tensor) -> None:
    p = pyro.sample("p", dist.Beta(number(2), number(2)))
    gap = pyro.sample("gap", dist.LogNormal(number(0), number(1)))
    with pyro.plate("rows", len(y)), poutine.mask(mask=here):
        z = pyro.sample("z", dist.Bernoulli(p))
        pyro.sample("y", dist.Normal(gap * z, 1.0), obs=y)


def items(y: Tensor) -> None:
    """Labels by several annotators, whose confusion is unknown."""
    share = pyro.sample("share", dist.Dirichlet(torch.ones(2, dtype=F64)))
    with pyro.plate("annotators", y.shape[0], dim=-2):
        right = pyro.sample("right", dist.Beta(number(4), number(1)))
    with pyro.plate("items", y.shape[1], dim=-1):
        z = pyro.sample("z", dist.Categorical(share))
        with pyro.plate("annotators_", y.shape[0], dim=-2):
            pyro.sample("y", dist.Bernoulli(torch.where(z == 1, right, 1 - right)), obs=y)


@dataclass(frozen=True)
class Case:
    """A program, its arguments, and whether its sums have no scale."""

    program: Callable[..., None]
    arguments: dict[str, Tensor]
    plain: bool = True

    def __str__(self) -> str:
        return self.program.__name__


def _numbers(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return 2 * torch.randn(*shape, generator=generator, dtype=F64)


def _bits(*shape: int) -> Tensor:
    return (_numbers(*shape) > 0).to(F64)


CASES = [
    Case(mixture, {"y": _numbers(4)}),
    Case(global_and_local, {"y": _numbers(2, 3)}),
    Case(hidden_markov, {"y": _numbers(5)}),
    Case(second_order, {"y": _numbers(6)}),
    Case(sequences, {"y": _bits(2, 3, 2), "lengths": torch.tensor([3, 2])}),
    Case(factorial, {"y": _numbers(3)}),
    Case(autoregressive, {"y": _numbers(7)}),
    Case(neural, {"y": _bits(5)}),
    Case(capture_recapture, {"y": torch.tensor([[1.0, 0, 1], [0, 1, 0], [0, 0, 1]], dtype=F64)}),
    Case(epidemic, {"y": torch.tensor([1.0, 3, 2], dtype=F64)}),
    Case(scaled, {"y": _numbers(5)}, plain=False),
    Case(masked, {"y": _numbers(5), "here": torch.tensor([True, False, True, True, False])}),
    Case(items, {"y": _bits(3, 4)}),
]


def _latents(trace: Any) -> dict[str, Any]:
    return {
        name: s
        for name, s in trace.nodes.items()
        if s["type"] == "sample" and not s["is_observed"] and not site_is_subsample(s)
    }


def values_of(case: Case, seed: int) -> dict[str, Tensor]:
    """Values of the continuous sites, drawn from their priors."""
    torch.manual_seed(seed)
    trace = poutine.trace(case.program).get_trace(**case.arguments)
    return {
        name: s["value"].detach()
        for name, s in _latents(trace).items()
        if not s["fn"].support.is_discrete
    }


def by_pyro(case: Case, values: dict[str, Tensor]) -> Tensor:
    """The density by TraceEnum_ELBO with a guide without sites."""
    program = poutine.condition(config_enumerate(case.program), data=values)
    loss = TraceEnum_ELBO(max_plate_nesting=2).differentiable_loss
    return -torch.as_tensor(loss(program, lambda **_: None, **case.arguments))


def assignments(case: Case, values: dict[str, Tensor]) -> list[tuple[dict[str, Tensor], Tensor]]:
    """All values of the discrete sites, each with its log density."""
    trace = poutine.trace(poutine.condition(case.program, data=values)).get_trace(**case.arguments)
    sites = {name: s["fn"] for name, s in _latents(trace).items() if s["fn"].support.is_discrete}
    supports = {name: law.enumerate_support(expand=False).flatten() for name, law in sites.items()}
    axes = [supports[name] for name, law in sites.items() for _ in range(law.batch_shape.numel())]
    found = []
    for combination in product(*axes):
        left = iter(combination)
        discrete = {
            name: torch.stack([next(left) for _ in range(law.batch_shape.numel())]).reshape(
                law.batch_shape
            )
            for name, law in sites.items()
        }
        program = poutine.condition(case.program, data={**values, **discrete})
        trace = poutine.trace(program).get_trace(**case.arguments)
        total = number(0.0)
        for name, s in trace.nodes.items():
            if s["type"] != "sample" or site_is_subsample(s):
                continue
            found_here = s["fn"].log_prob(s["value"])
            if name not in sites and s["mask"] is not None:  # what is masked has a sum of 1
                found_here = torch.where(s["mask"], found_here, 0.0)
            total = total + found_here.sum()
        found.append((discrete, total))
    return found


def by_hand(case: Case, values: dict[str, Tensor]) -> Tensor:
    """The density by the sum over all assignments."""
    return torch.logsumexp(torch.stack([value for _, value in assignments(case, values)]), 0)
