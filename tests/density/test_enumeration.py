"""Discrete latent sites are summed out: the density equals that with the sum written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.models import Program
from tests.enumerated_programs import sequences

F64 = torch.float64


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def groups() -> tuple[Tensor, Tensor, Tensor]:
    """Global latents, and a mean for each of four groups."""
    mu = pyro.sample("mu", dist.Normal(number(0), number(2)))
    gap = pyro.sample("gap", dist.LogNormal(number(1), number(0.5)))
    p = pyro.sample("p", dist.Beta(number(2), number(5)))
    with pyro.plate("groups", 4):
        a = pyro.sample("a", dist.Normal(mu, 1.0))
    return a, gap, p


def hierarchy(group: Tensor, y: Tensor | None = None) -> None:
    """Rows in groups; each row is raised by ``gap`` with probability ``p``."""
    a, gap, p = groups()
    with pyro.plate("rows", len(group)):
        raised = pyro.sample("raised", dist.Bernoulli(p))
        pyro.sample("y", dist.Normal(a[group] + gap * raised, number(1)), obs=y)


def by_hand(group: Tensor, y: Tensor | None = None) -> None:
    a, gap, p = groups()
    with pyro.plate("rows", len(group)):
        which = dist.Categorical(torch.stack([1 - p, p]).expand(len(group), 2))
        loc = torch.stack([a[group], a[group] + gap], -1)
        pyro.sample("y", dist.MixtureSameFamily(which, dist.Normal(loc, number(1))), obs=y)


def switch(y: Tensor) -> None:
    """One discrete site for all rows, on which another depends."""
    loc = pyro.sample("loc", dist.Normal(number(0), number(1)))
    first = pyro.sample("first", dist.Categorical(torch.tensor([0.2, 0.3, 0.5], dtype=F64)))
    second = pyro.sample(
        "second", dist.Bernoulli(torch.tensor([0.1, 0.5, 0.9], dtype=F64)[first.long()])
    )
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(loc + first.to(F64) - 2 * second, number(1)), obs=y)


def data() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(40) % 4
    raised = (torch.rand(40, generator=generator) < 0.3).to(F64)
    return {
        "group": group,
        "y": 4 * raised + 0.3 * group + torch.randn(40, generator=generator, dtype=F64),
    }


def test_density_gradient_and_hessian_are_those_of_the_sum_by_hand() -> None:
    ours, theirs = (Target(Program(f), data()) for f in (hierarchy, by_hand))
    assert not ours.eager
    z = torch.randn(3, ours.dim, generator=torch.Generator().manual_seed(1), dtype=F64)
    for point in z:
        for a, b in zip(ours.value_and_grad(point), theirs.value_and_grad(point), strict=True):
            assert torch.allclose(a, b, rtol=1e-10)
        assert torch.allclose(ours.hessian(point), theirs.hessian(point), rtol=1e-8, atol=1e-8)
        assert ours.log_likelihood(point) == pytest.approx(theirs.log_likelihood(point))
    assert torch.allclose(
        ours.value_and_grad_batch(z)[1], theirs.value_and_grad_batch(z)[1], rtol=1e-8, atol=1e-10
    )


def test_sites_that_depend_on_one_another_equal_brute_force() -> None:
    y = torch.tensor([0.3, -0.8, 1.9], dtype=F64)
    target = Target(Program(switch), {"y": y})
    loc = number(0.4)
    terms = []
    for i, p in enumerate((0.2, 0.3, 0.5)):
        for j in (0, 1):
            q = (0.1, 0.5, 0.9)[i]
            row = dist.Normal(loc + i - 2 * j, number(1)).log_prob(y).sum()
            terms.append(torch.log(number(p * (q if j else 1 - q))) + row)
    expected = torch.logsumexp(torch.stack(terms), 0) + dist.Normal(number(0), number(1)).log_prob(
        loc
    )
    assert float(target.log_density(loc[None])) == pytest.approx(float(expected), rel=1e-12)


def test_the_likelihood_is_that_given_the_latents() -> None:
    """A continuous latent below a discrete one, and a factor, which belongs to the prior."""

    def program(y: Tensor) -> None:
        k = pyro.sample("k", dist.Bernoulli(number(0.3)))
        x = pyro.sample("x", dist.Normal(3 * k, number(1)))
        pyro.factor("tilt", -x.square())
        pyro.sample("y", dist.Normal(x, number(0.5)), obs=y)

    y = number(1.2)
    target = Target(Program(program), {"y": y})
    x = number(0.7)
    log_likelihood, count = target.log_likelihood(x[None])
    assert log_likelihood == pytest.approx(float(dist.Normal(x, number(0.5)).log_prob(y)))
    assert count == 1


def test_several_scales_in_one_sum_are_refused() -> None:
    def program(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(1)))
        with pyro.plate("rows", len(y)):
            k = pyro.sample("k", dist.Bernoulli(number(0.3)))
            with pyro.poutine.scale(scale=2.0):
                pyro.sample("y", dist.Normal(mu + k, number(1)), obs=y)

    with pytest.raises(NotApplicable, match="one scale"):
        Target(Program(program), {"y": torch.zeros(3, dtype=F64)})


def test_weights_of_rows_multiply_the_log_sum_of_each() -> None:
    y, weights = torch.tensor([0.3, -1.0, 4.0], dtype=F64), torch.tensor([1.0, 2, 0.5], dtype=F64)

    def program(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(1)))
        with pyro.plate("rows", len(y)), pyro.poutine.scale(scale=weights):
            k = pyro.sample("k", dist.Bernoulli(number(0.3)))
            pyro.sample("y", dist.Normal(mu + 3 * k, number(1)), obs=y)

    mu = number(0.2)
    rows = torch.logaddexp(
        dist.Normal(mu, 1.0).log_prob(y) + number(0.7).log(),
        dist.Normal(mu + 3, 1.0).log_prob(y) + number(0.3).log(),
    )
    expected = (weights * rows).sum() + dist.Normal(number(0), 1.0).log_prob(mu)
    found = Target(Program(program), {"y": y}).log_density(mu[None])
    assert float(found) == pytest.approx(float(expected), rel=1e-12)


def test_a_hidden_markov_model_is_fitted() -> None:
    def program(y: Tensor) -> None:
        stay = pyro.sample("stay", dist.Beta(number(4), number(2)))
        k = torch.zeros((), dtype=torch.long)
        for t in pyro.markov(range(len(y))):
            p = torch.stack([stay, 1 - stay])
            k = pyro.sample(f"k{t}", dist.Categorical(torch.stack([p, p.flip(0)])[k]))
            pyro.sample(f"y{t}", dist.Normal(3.0 * k.to(F64), number(1)), obs=y[t])

    y = torch.tensor([0.1, 2.8, 3.3, 0.4], dtype=F64)
    target = Target(Program(program), {"y": y})
    stay = number(0.7)
    total = number(0.0)
    for path in range(16):
        bits, before, weight = [(path >> t) & 1 for t in range(4)], 0, number(1.0)
        for t, b in enumerate(bits):
            weight = (
                weight
                * (stay if b == before else 1 - stay)
                * dist.Normal(number(3.0 * b), 1.0).log_prob(y[t]).exp()
            )
            before = b
        total = total + weight
    z = target.unconstrain({"stay": stay[None]})[0]
    assert target.log_likelihood(z)[0] == pytest.approx(float(total.log()))
    assert (
        ppgp.fit(program, {"y": y}, inference.Laplace(), progress=False).stats["log_likelihood"] < 0
    )


def test_what_depends_on_a_summed_site_is_not_drawn() -> None:
    def program(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
        k = pyro.sample("k", dist.Bernoulli(number(0.5)))
        pyro.deterministic("m", (2 * k - 1) * mu)
        pyro.sample("y", dist.Normal((2 * k - 1) * mu, number(1)), obs=y)

    assert set(
        ppgp.fit(program, {"y": number(3.0)}, inference.MAP(starts=1), progress=False).draws
    ) == {"mu"}


METHODS = [
    inference.MAP(),
    inference.Laplace(),
    inference.SVI(),
    inference.Pathfinder(),
    inference.HMC(),
    inference.NUTS(),
]


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("how", METHODS, ids=lambda h: type(h).__name__)
def test_every_method_takes_the_program(how: Any) -> None:
    posterior = ppgp.fit(hierarchy, data(), how.quick(), progress=False)
    assert set(posterior.draws) == {"mu", "gap", "p", "a"}
    assert all(bool(torch.isfinite(v).all()) for v in posterior.draws.values())
    assert bool(torch.isfinite(posterior.predict(group=data()["group"])["y"].mean).all())


def test_what_cannot_sum_says_so() -> None:
    with pytest.raises(NotApplicable, match="a Gaussian guide for a program with discrete sites"):
        ppgp.fit(hierarchy, data(), inference.SVI("iaf"), progress=False)


def test_rows_have_the_density_of_the_sum_by_hand() -> None:
    ours, theirs = (
        ppgp.fit(f, data(), inference.Laplace(draws=20), progress=False)
        for f in (hierarchy, by_hand)
    )
    theirs = replace(theirs, draws=ours.draws)
    assert torch.allclose(ours.log_likelihood(), theirs.log_likelihood(), rtol=1e-10)


@pytest.mark.parametrize("lengths", [[3, 2, 3], [3, 0, 1]])
def test_sequences_of_a_chain_are_rows(lengths: list[int]) -> None:
    y = (torch.randn(3, 3, generator=torch.Generator().manual_seed(2), dtype=F64) > 0).to(F64)
    arguments = {"y": y[..., None], "lengths": torch.tensor(lengths)}
    posterior = ppgp.fit(sequences, arguments, inference.MAP(), progress=False)
    found = posterior.log_likelihood()
    kept = [i for i, n in enumerate(lengths) if n]
    assert found.shape == (1, 1, len(kept))
    values = {name: v[0, 0] for name, v in posterior.draws.items()}
    for place, i in enumerate(kept):
        one = {"y": y[i : i + 1, :, None], "lengths": torch.tensor(lengths[i : i + 1])}
        target = Target(Program(sequences), one)
        z = target.unconstrain(values)
        assert float(found[0, 0, place]) == pytest.approx(target.log_likelihood(z)[0])


def test_rows_that_a_discrete_site_connects_have_no_density_each() -> None:
    y = torch.tensor([0.3, -0.8, 1.9], dtype=F64)
    posterior = ppgp.fit(switch, {"y": y}, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="that discrete sites in no plate connect"):
        posterior.log_likelihood()


def test_alike_log_normal_sites_beside_a_discrete_one() -> None:
    """Several sites of one family are evaluated together: their parameters are told apart."""
    x = torch.tensor([0.5, 1.5, 2.5, 0.7, 3.1], dtype=torch.float64)
    shifts = torch.tensor([0.0, 1.0, -0.5, 0.3, 2.0], dtype=torch.float64)

    def program() -> None:
        m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        z = pyro.sample("z", dist.Bernoulli(torch.tensor(0.3, dtype=torch.float64)))
        for i in range(len(x)):
            law = dist.LogNormal(m + z * shifts[i], torch.ones((), dtype=torch.float64))
            pyro.sample(f"x_{i}", law, obs=x[i])

    target = ppgp.Target(Program(program), {})
    at = torch.tensor([0.4], dtype=torch.float64)
    each = [
        torch.log(torch.tensor(p)) + dist.LogNormal(at + z * shifts, 1.0).log_prob(x).sum()
        for z, p in ((0.0, 0.7), (1.0, 0.3))
    ]
    prior = dist.Normal(torch.zeros((), dtype=torch.float64), 1.0).log_prob(at[0])
    expected = prior + torch.logsumexp(torch.stack(each), 0)
    assert float(target.log_density(at)) == pytest.approx(float(expected), rel=1e-7)
