"""A program's density is 0 where a value or a parameter leaves its set; each mean by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.distributions.transforms import AffineTransform

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.errors import DataError
from ppgp.models import Program

F64 = torch.float64


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def program_of(prior: Callable[[], Any], law: Callable[[Tensor], Any]) -> Callable[..., None]:
    def program(y: Tensor) -> None:
        a = pyro.sample("a", prior())
        with pyro.plate("rows", len(y)):
            pyro.sample("y", law(a), obs=y)

    return program


def shifted(a: Tensor) -> Any:
    return dist.TransformedDistribution(dist.Exponential(number(2)), [AffineTransform(a, 1.0)])


def mixed(a: Tensor) -> Any:
    which = dist.Categorical(torch.tensor([0.3, 0.7], dtype=F64))
    shapes = torch.tensor([1.0, 3.0], dtype=F64)
    return dist.MixtureSameFamily(which, dist.Pareto(a[..., None], shapes.expand(4, 2)))


GAMMA = dist.Gamma(number(2), number(1))
NORMAL = dist.Normal(number(0.1), number(0.5))
ABOVE_FIVE = torch.tensor([5.2, 6.0, 9.0, 7.0], dtype=F64)
ONES = torch.ones(4, dtype=F64)
# prior, distribution, data, the interval of a that the data and the distribution leave
CASES = {
    "scale of a Pareto": (lambda: GAMMA, lambda a: dist.Pareto(a, number(2)), ABOVE_FIVE, 0.0, 5.2),
    "origin of waiting times": (lambda: NORMAL, shifted, ABOVE_FIVE / 4, -9.0, 1.3),
    "a probability": (lambda: NORMAL, dist.Bernoulli, ONES, 0.0, 1.0),
    "expanded probabilities": (lambda: NORMAL, lambda a: dist.Binomial(2, a), ONES, 0.0, 1.0),
    "a shape": (lambda: NORMAL, lambda a: dist.Gamma(a, number(1)), ONES, 0.0, 9.0),
    "a rate": (lambda: NORMAL, lambda a: dist.Poisson(a), ONES, 0.0, 9.0),
    "a gate": (
        lambda: NORMAL,
        lambda a: dist.ZeroInflatedPoisson(number(2), gate=a),
        0 * ONES,
        0.0,
        1.0,
    ),
    "a mixture": (lambda: GAMMA, mixed, ABOVE_FIVE, 0.0, 5.2),
    "an event": (
        lambda: NORMAL,
        lambda a: dist.Bernoulli(a.expand(4, 1)).to_event(1),
        ONES[:, None],
        0.0,
        1.0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_density_is_zero_outside(case: str) -> None:
    prior, law, y, low, high = CASES[case]
    target = Target(Program(program_of(prior, law)), {"y": y})
    assert not target.eager
    for a in torch.linspace(-1.45, 8.05, 20, dtype=F64):
        if prior() is GAMMA and a <= 0:
            continue
        z = target.unconstrain({"a": a[None]})[0]
        found = [target.log_density(z, jacobian=False), target.value_and_grad(z, jacobian=False)[0]]
        if low < a < high:
            own = law(a)
            own = own.expand((len(y),)) if not own.batch_shape else own
            expected = float(prior().log_prob(a) + own.log_prob(y).sum())
        else:
            expected = -torch.inf
        assert [float(v) for v in found] == pytest.approx([expected] * 2)


@pytest.mark.parametrize("case", ["scale of a Pareto", "origin of waiting times", "a probability"])
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_a_sampler_stays_inside(case: str) -> None:
    prior, law, y, low, high = CASES[case]
    how = inference.NUTS(draws=200, warmup=200, chains=2)
    draws = ppgp.fit(program_of(prior, law), {"y": y}, how, progress=False).draws["a"]
    grid = torch.linspace(low, high, 20_001, dtype=F64)[1:-1]
    log_density = prior().log_prob(grid) + law(grid[:, None]).log_prob(y).sum(-1)
    weights = log_density.softmax(0)
    mean = (weights * grid).sum()
    sd = (weights * (grid - mean).square()).sum().sqrt()
    assert bool(((draws > low) & (draws < high)).all())
    assert float(draws.mean()) == pytest.approx(float(mean), abs=5 * float(sd) / 100**0.5)


def test_a_prior_through_a_transform_has_the_support_of_its_base() -> None:
    """s - 0.5 is exponential; torch gives the real line as the support of s."""

    def program(y: Tensor) -> None:
        base = dist.Exponential(number(1))
        s = pyro.sample("s", dist.TransformedDistribution(base, [AffineTransform(0.5, 1.0)]))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(number(0), s), obs=y)

    y = torch.tensor([0.1, -0.05, 0.02], dtype=F64)
    target = Target(Program(program), {"y": y})
    z = number(0.3)[None]
    s = 0.5 + z.exp()
    expected = -z.exp() + dist.Normal(number(0), s).log_prob(y).sum() + z
    assert float(target.log_density(z)) == pytest.approx(float(expected), rel=1e-12)
    assert float(target.constrain(z)["s"]) == pytest.approx(float(s))


def test_data_outside_a_support_are_refused_at_whatever_draw() -> None:
    """The first draws of a prior may allow what a later one does not."""

    def program(y: Tensor) -> None:
        a = pyro.sample("a", NORMAL)
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Exponential(ONES).mask(a.item() < 0.5), obs=y)

    assert Target(Program(program), {"y": ONES}).dim == 1
    with pytest.raises(DataError, match="Pyro"):
        Target(Program(program), {"y": -ONES})


def test_what_cannot_leave_its_set_is_not_checked() -> None:
    def program(y: Tensor) -> None:
        a = pyro.sample("a", NORMAL)
        s = pyro.sample("s", dist.HalfNormal(number(1)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(a, s), obs=y)
            pyro.sample("k", dist.Bernoulli(logits=a), obs=(y > 0).to(F64))

    target = Target(Program(program), {"y": ONES})
    assert not target.guards
