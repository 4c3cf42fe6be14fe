"""What torch has no rule for under vmap is done by what it has one for, without its warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, models
from ppgp.density.graph.batching import Batched, has_rule
from ppgp.density.handlers import over_draws
from ppgp.density.target import Target
from ppgp.runtime.seeding import seeded

F64 = torch.float64
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def told_each_time() -> Iterator[None]:
    """Let torch repeat the warnings that it gives once per process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def numbers(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(*shape, generator=generator, dtype=F64) + 0.5


IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "clamp_": lambda M, _: M.clone().clamp_(min=0.8),
    "addr_": lambda M, a: M.clone().addr_(a, a, beta=-0.5, alpha=0.5),
    "addcmul_": lambda M, a: M.clone().addcmul_(a, a, value=2.0),
    "tril_": lambda M, _: M.clone().tril_(-1),
    "cumsum_": lambda M, _: M.clone().cumsum_(0),
    "lerp_": lambda M, a: M.clone().lerp_(a.expand(3, 3), 0.3),
    "clamp_ of a view": lambda M, _: _part_clamped(M),
}


def _part_clamped(M: Tensor) -> Tensor:
    whole = M.clone()
    whole[0].clamp_(max=0.7)
    return whole


@pytest.mark.parametrize("change", IN_PLACE.values(), ids=IN_PLACE)
def test_a_change_in_place_is_that_of_each_element(change: Callable[..., Tensor]) -> None:
    M, a = numbers(4, 3, 3), numbers(4, 3)
    with Batched():
        found = torch.vmap(change)(M, a)
    assert torch.equal(found, torch.stack([change(*pair) for pair in zip(M, a, strict=True)]))


def test_operations_with_a_rule_are_known() -> None:
    for operation in (aten.mul.Tensor, aten.addr.default, aten.addr_.default, aten.sum.default):
        assert has_rule(operation)
    assert not has_rule(aten.renorm_.default)


def test_draws_of_a_binomial_with_one_count_have_its_moments() -> None:
    p = torch.linspace(0.1, 0.9, 2000, dtype=F64)

    def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": dist.Binomial(10, values["p"].expand(50)).sample()}

    with seeded(0):
        y = over_draws(one, {"p": p})["y"]
    assert y.shape == (2000, 50)
    error = (
        (y - 10 * p[:, None]).mean() / (10 * p * (1 - p)).mean().sqrt() * len(y.flatten()) ** 0.5
    )
    assert abs(float(error)) < 4


FAMILIES: dict[str, Callable[[Tensor], Any]] = {
    "Gamma": lambda f: dist.Gamma(2.0, f.exp()),
    "Binomial": lambda f: dist.Binomial(10, logits=f),
    "NegativeBinomial": lambda f: dist.NegativeBinomial(3.0, logits=f),
    "InverseGamma": lambda f: dist.InverseGamma(3.0, f.exp()),
    "GammaPoisson": lambda f: dist.GammaPoisson(f.exp(), 1.0),
    "StudentT": lambda f: dist.StudentT(3 + f.exp(), f, 1.0),
    "BetaBinomial": lambda f: dist.BetaBinomial(f.exp(), 1.0, 10),
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_program_is_predicted_without_a_warning(
    family: Callable[[Tensor], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    x = numbers(6)

    def program(x: Tensor, y: Tensor | None = None) -> Tensor:
        slope = pyro.sample("slope", dist.Normal(torch.zeros((), dtype=F64), 0.3))
        with pyro.plate("rows", len(x)):
            return pyro.sample("y", family(slope * x), obs=y)

    y = torch.tensor([1.0, 2.0, 1.0, 0.5, 3.0, 1.0], dtype=F64).ceil()
    posterior = ppgp.fit(program, {"x": x, "y": y}, inference.Laplace(draws=20), progress=False)
    assert len(posterior.predict(x=x).mean) == 6
    assert "Warning" not in capfd.readouterr().err


LIBRARY: dict[str, tuple[Any, Any]] = {
    "rank-one update in place": (models.GP(), numbers(10)),
    "slope of a log sigmoid": (models.GaussianMixture(), numbers(10)),
}


@pytest.mark.parametrize(("model", "y"), LIBRARY.values(), ids=LIBRARY)
def test_the_graph_of_several_points_is_made_without_a_warning(
    model: Any, y: Tensor, capfd: pytest.CaptureFixture[str]
) -> None:
    data = Dataset(numbers(10, 2), y)
    target = Target(model.prepare(data), data)
    z = 0.3 * torch.randn(3, target.dim, dtype=F64, generator=torch.Generator().manual_seed(1))
    values, gradients = target.value_and_grad_batch(z)
    for i, point in enumerate(z):
        value, gradient = target.value_and_grad(point, compile=False)
        torch.testing.assert_close(values[i], value)
        torch.testing.assert_close(gradients[i], gradient)
    assert target.notes == []
    assert "Warning" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "law",
    [
        dist.Normal(1.0, 2.0),
        dist.LogNormal(0.0, 0.5),
        dist.Exponential(2.0),
        dist.Uniform(-1.0, 3.0),
        dist.Cauchy(1.0, 0.5),
        dist.Laplace(0.0, 1.5),
        dist.Gumbel(0.0, 1.0),
    ],
    ids=lambda law: type(law).__name__,
)
def test_numbers_drawn_into_new_memory_have_their_law(law: Any) -> None:
    """Each point of the batch has its own; the uniform values of all pass Kolmogorov's test."""
    with torch.random.fork_rng(devices=[]), Batched():
        torch.manual_seed(0)
        found = torch.vmap(lambda z: law.expand([500]).rsample() + 0 * z, randomness="different")(
            torch.zeros(20)
        )
    assert len(found.unique()) > 9000
    assert stats.kstest(law.cdf(found.flatten()).numpy(), "uniform").pvalue > 1e-3


def new_memory(z: Tensor) -> Tensor:
    return torch.empty(2).normal_(mean=30.0, std=0.5) + z


def filled_before_use(z: Tensor) -> Tensor:
    e = torch.zeros(2)
    e.exponential_(lambd=0.001)
    return e + z + 29.0


@pytest.mark.parametrize("program", [new_memory, filled_before_use], ids=lambda f: f.__name__)
def test_memory_that_a_program_fills_itself_has_random_numbers(
    program: Callable[[Tensor], Tensor],
) -> None:
    """One point after another where vmap cannot."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = over_draws(lambda v: {"x": program(v["z"])}, {"z": torch.zeros(20)})["x"]
    assert len(found.unique()) == 40
    assert bool((found > 27).all())
    assert found.std() > 0.3


def test_an_exponential_number_is_above_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", torch.zeros)  # each of 17 million numbers may be 0
    with Batched():
        found = torch.vmap(lambda z: dist.Exponential(2.0).expand([3]).rsample() + 0 * z)(
            torch.zeros(2)
        )
    assert bool(found.log().isfinite().all())
