"""Checks of a program before a fit: validation, plates, masks, randomness, angles, priors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer.reparam import LocScaleReparam
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.errors import DataError, ImproperPosterior, NotApplicable, NumericalError
from ppgp.inference.mcmc.nutpie_sampler import Chain
from ppgp.models import Program
from ppgp.priors import FlatDistribution

F64 = torch.float64


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def rows_of(prior: Callable[[], Any], law: Callable[[Tensor], Any]) -> Callable[..., None]:
    def program(y: Tensor) -> None:
        a = pyro.sample("a", prior())
        with pyro.plate("rows", len(y)):
            pyro.sample("y", law(a), obs=y)

    return program


# -- validation --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prior", "law", "y"),
    [
        (lambda: dist.Beta(number(1), number(1)), dist.Bernoulli, numbers(1, 2, 2, 1)),
        (lambda: dist.Gamma(number(1), number(1)), dist.Exponential, numbers(1, -2, 0.5)),
        (lambda: dist.Gamma(number(1), number(1)), dist.Poisson, numbers(1, 2.5, 3)),
        (
            lambda: dist.Gamma(number(1), number(1)),
            lambda a: dist.Gamma(a - 100, number(1)),
            numbers(1, 2),
        ),
    ],
    ids=["labels 1 and 2", "negative times", "half a count", "negative shape"],
)
def test_what_validation_refuses_is_not_fitted(prior: Any, law: Any, y: Tensor) -> None:
    with pytest.raises(DataError, match="Pyro") as caught:
        ppgp.fit(rows_of(prior, law), {"y": y}, inference.MAP(), progress=False)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_prior_that_reaches_beyond_the_data_is_no_mistake() -> None:
    """Uniform(0, a) has no density for y > a, and a program may start there."""
    program = rows_of(
        lambda: dist.Exponential(number(1)), lambda a: dist.Uniform(torch.zeros_like(a), a)
    )
    posterior = ppgp.fit(
        program,
        {"y": numbers(0.2, 0.9)},
        inference.MetropolisHastings(draws=20, warmup=20, chains=2),
        progress=False,
    )
    assert bool((posterior.draws["a"] > 0.9).all())


def test_where_nothing_is_finite_validation_says_why() -> None:
    program = rows_of(lambda: dist.Gamma(number(1), number(1)), lambda a: dist.Normal(a, number(1)))
    message = "got NaN for 1 of 2 numbers in 'y', and no finite log density: drop those rows"
    with pytest.raises(NumericalError, match=message) as caught:
        ppgp.fit(program, {"y": numbers(1, math.nan)}, inference.MAP(), progress=False)
    assert "tensor(" not in str(caught.value)
    no_scale = rows_of(
        lambda: dist.Gamma(number(1), number(1)), lambda a: dist.Normal(a, number(-1))
    )
    with pytest.raises(NumericalError, match=r"all of 100 places \(Pyro's validation: .* scale"):
        ppgp.fit(no_scale, {"y": numbers(1, 2)}, inference.MAP(), progress=False)


def test_a_batch_in_no_plate_is_refused_where_discrete_sites_are_summed_out() -> None:
    def program(y: Tensor, plate: bool) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
        law = dist.Bernoulli(torch.full((len(y),), 0.5, dtype=F64))
        k = None if plate else pyro.sample("k", law)
        with pyro.plate("rows", len(y)):
            k = pyro.sample("k", law) if k is None else k
            pyro.sample("y", dist.Normal(mu + 5 * k, number(1)), obs=y)

    y = numbers(0, 5, 5, 0, 0)
    with pytest.raises(NotApplicable, match='"k"'):
        Target(Program(program), {"y": y, "plate": False})
    found = Target(Program(program), {"y": y, "plate": True}).log_density(numbers(0.3))
    own = [dist.Normal(number(0.3 + shift), number(1)).log_prob(y) for shift in (0, 5)]
    expected = torch.logsumexp(torch.stack(own) + math.log(0.5), 0).sum() + dist.Normal(
        number(0), number(5)
    ).log_prob(number(0.3))
    assert float(found) == pytest.approx(float(expected))


# -- random numbers ----------------------------------------------------------------------

X = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
Y = X @ numbers(1, -0.5) + 0.3 * torch.randn(
    30, generator=torch.Generator().manual_seed(1), dtype=F64
)


def subsampled(X: Tensor, y: Tensor) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(X), subsample_size=10) as i:
        pyro.sample("y", dist.Normal(X[i] @ w, number(0.3)), obs=y[i])


def monte_carlo(X: Tensor, y: Tensor) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    e = torch.randn(50, 1, dtype=F64)
    pyro.factor(
        "likelihood", torch.logsumexp(dist.Normal(X @ w + e, number(0.3)).log_prob(y), 0).sum()
    )


METHODS = [
    inference.MAP(),
    inference.Laplace(),
    inference.NUTS(),
    inference.HMC(),
    inference.Pathfinder(),
    inference.Ensemble(),
]


@pytest.mark.parametrize("how", METHODS, ids=lambda how: type(how).__name__)
def test_a_random_density_is_refused_with_advice(how: Any) -> None:
    with pytest.raises(NotApplicable, match=r"SVI\(\), SGLD or SGHMC"):
        ppgp.fit(monte_carlo, {"X": X, "y": Y}, how, progress=False)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize(
    "how",
    [inference.SVI(steps=600), inference.SGLD(draws=60, warmup=60, step=0.1, chains=2, thin=5)],
)
def test_svi_and_sgld_take_a_subsampled_plate(how: Any) -> None:
    first, second = (
        ppgp.fit(subsampled, {"X": X, "y": Y}, how, seed=3, progress=False) for _ in range(2)
    )
    assert torch.equal(first.draws["w"], second.draws["w"])
    precision = X.mT @ X / 0.09 + torch.eye(2, dtype=F64)
    exact = torch.linalg.solve(precision, X.mT @ Y / 0.09)
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    assert bool(((first.draws["w"].flatten(0, 1).mean(0) - exact).abs() < 2 * sd).all())
    assert first.log_likelihood().shape[-1] == 30


def test_a_start_of_a_param_may_be_random() -> None:
    def program(y: Tensor) -> None:
        shift = pyro.param("shift", torch.randn(1, dtype=F64)[0])
        a = pyro.sample("a", dist.Normal(number(0), number(1)))
        pyro.sample("y", dist.Normal(a + shift, number(1)), obs=y)

    assert Target(Program(program), {"y": number(1)}).random is None


# -- masks -------------------------------------------------------------------------------


def by_handler(y: Tensor, kept: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
    with pyro.plate("rows", len(y)), poutine.mask(mask=kept):
        pyro.sample("y", dist.Normal(mu, number(1)), obs=y)


def by_law(y: Tensor, kept: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mu, number(1)).mask(kept), obs=y)


@pytest.mark.parametrize("program", [by_handler, by_law])
def test_masked_rows_are_no_data(program: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(20, generator=generator, dtype=F64)
    kept = torch.arange(20) >= 5
    y[:5] = 50.0
    masked = ppgp.fit(program, {"y": y, "kept": kept}, inference.Laplace(), progress=False)
    dropped = ppgp.fit(program, {"y": y[5:], "kept": kept[5:]}, inference.Laplace(), progress=False)
    assert masked.log_likelihood().shape == (1, 1000, 15)
    torch.testing.assert_close(masked.log_likelihood(), dropped.log_likelihood())
    assert masked.bic == pytest.approx(dropped.bic)
    assert ppgp.psis_loo(masked).elpd == pytest.approx(ppgp.psis_loo(dropped).elpd)


def test_a_mask_that_moves_with_a_latent_is_refused() -> None:
    def program(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(1)))
        with pyro.plate("rows", len(y)), poutine.mask(mask=y > mu.detach()):
            pyro.sample("y", dist.Normal(mu, number(1)), obs=y)

    posterior = ppgp.Posterior(
        Program(program), {"y": numbers(0, 1)}, {"mu": numbers(-1, 0.5)[None]}, inference.MAP()
    )
    with pytest.raises(NotApplicable, match="mask"):
        posterior.log_likelihood()


def test_a_reparametrised_site_is_no_data() -> None:
    def program(s: Tensor, y: Tensor | None = None) -> None:
        mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
        with pyro.plate("rows", len(s)):
            theta = pyro.sample("theta", dist.Normal(mu, 2.0))
            pyro.sample("y", dist.Normal(theta, s), obs=y)

    other = poutine.reparam(program, config={"theta": LocScaleReparam(0.0)})
    s, y = torch.ones(8, dtype=F64), torch.linspace(-2, 3, 8, dtype=F64)
    one = ppgp.fit(program, {"s": s, "y": y}, inference.Laplace(), progress=False)
    two = ppgp.fit(other, {"s": s, "y": y}, inference.Laplace(), progress=False)
    assert set(two.pointwise()) == {"y"}
    assert two.stats["observations"] == 8
    assert set(two.draws) == {"mu", "theta_decentered", "theta"}
    torch.testing.assert_close(
        two.draws["theta"].mean((0, 1)), one.draws["theta"].mean((0, 1)), rtol=0, atol=0.25
    )


# -- supports ----------------------------------------------------------------------------


def test_an_improper_uniform_prior_is_flat() -> None:
    def program(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        sigma = pyro.sample("sigma", dist.ImproperUniform(dist.constraints.positive, (), ()))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu, sigma), obs=y)

    y = numbers(1, 2, 4, 7)
    mode = ppgp.fit(program, {"y": y}, inference.MAP(), progress=False)
    assert float(mode.draws["mu"]) == pytest.approx(3.5, abs=1e-4)
    assert float(mode.draws["sigma"]) == pytest.approx(float(y.std(correction=0)), abs=1e-4)


ANGLES = numbers(3.0, -3.0, 2.9, -2.8)


def turning(y: Tensor) -> None:
    a = pyro.sample("a", dist.VonMises(number(0), number(0.5)))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.VonMises(a, number(2)), obs=y)


@pytest.mark.filterwarnings(
    "ignore::ppgp.errors.ConvergenceWarning"
)  # R-hat of a line meets angles at both ends of it
@pytest.mark.parametrize(
    "how",
    [inference.Laplace(), inference.SVI(steps=1000), inference.NUTS(draws=500, warmup=300)],
    ids=repr,
)
def test_angles_have_no_seam(how: Any) -> None:
    """The posterior lies across +-pi; moments of cosine and sine are compared with a grid."""
    posterior = ppgp.fit(turning, {"y": ANGLES}, how, progress=False)
    a = posterior.draws["a"].flatten()
    assert bool((a.abs() <= math.pi).all())
    grid = torch.linspace(-math.pi, math.pi, 4001, dtype=F64)[:-1]
    law = dist.VonMises(grid[:, None], number(2)).log_prob(ANGLES).sum(-1) + dist.VonMises(
        number(0), number(0.5)
    ).log_prob(grid)
    weights = law.softmax(0)
    for function in (torch.cos, torch.sin):
        expected = float((weights * function(grid)).sum())
        assert float(function(a).mean()) == pytest.approx(expected, abs=0.05)


def test_the_evidence_of_angles() -> None:
    posterior = ppgp.fit(turning, {"y": ANGLES}, inference.Laplace(), progress=False)
    grid = torch.linspace(-math.pi, math.pi, 4001, dtype=F64)[:-1]
    law = dist.VonMises(grid[:, None], number(2)).log_prob(ANGLES).sum(-1) + dist.VonMises(
        number(0), number(0.5)
    ).log_prob(grid)
    exact = float(torch.logsumexp(law, 0)) + math.log(2 * math.pi / 4000)
    assert posterior.log_evidence == pytest.approx(exact, abs=0.05)
    assert posterior.stats["parameters"] == 1


def test_methods_of_pyro_itself_refuse_angles() -> None:
    for how in (inference.NUTS(engine="pyro"), inference.SVI("iaf")):
        with pytest.raises(NotApplicable, match="angle"):
            ppgp.fit(turning, {"y": ANGLES}, how, progress=False)


@pytest.mark.parametrize(
    "how", [inference.NUTS(draws=20, warmup=20, chains=2), inference.Laplace()], ids=repr
)
def test_separated_classes_under_a_flat_prior_are_improper(how: Any) -> None:
    def program(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", FlatDistribution(number(0), dist.constraints.real))
        b = pyro.sample("b", dist.Normal(number(0), number(1)))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=w * x + b), obs=y)

    x = torch.linspace(-2, 2, 30, dtype=F64)
    with pytest.raises(ImproperPosterior, match="w"):
        ppgp.fit(program, {"x": x, "y": (x > 0).double()}, how, progress=False)


class Panicking:
    """nutpie panics in Rust, with no Exception, where the gradient at the start is 0."""

    def wait(self) -> None:
        raise type("PanicException", (BaseException,), {})(
            "bad initial gradient\nStack backtrace:\n   0: <unknown>"
        )


def test_a_panic_of_the_sampler_is_one_sentence() -> None:
    chain = object.__new__(Chain)
    chain.failure = None
    with pytest.raises(NumericalError, match="bad initial gradient") as caught:
        chain.end(Panicking())
    assert "backtrace" not in str(caught.value)


# -- branches ----------------------------------------------------------------------------


def through_numpy(z: Tensor) -> bool:
    return float(z.detach().numpy()) > 2.5


def through_a_list(z: Tensor) -> bool:
    return z.detach().tolist() > 2.5


def through_a_shape(z: Tensor) -> bool:
    return z.reshape(1)[z.reshape(1) > 2.5].shape[0] > 0


def branching(far: Callable[[Tensor], bool]) -> Callable[..., None]:
    def program(y: Tensor) -> None:
        z = pyro.sample("z", dist.Normal(number(0), number(1)))
        pyro.factor("wall", -5 * (z - 2.5) if far(z) else number(0))
        pyro.sample("y", dist.Normal(z, number(2)), obs=y)

    return program


def tail(y: float) -> float:
    """P(z > 2.5 given y) by a grid."""
    z = torch.linspace(-6, 8, 14001, dtype=F64)
    log_density = -0.5 * z.square() - 0.125 * (y - z).square() - 5 * (z - 2.5).clamp_min(0)
    return float(log_density.softmax(0)[z > 2.5].sum())


@pytest.mark.parametrize(
    ("far", "reason"),
    [
        (through_numpy, "turns a value into a Python number"),
        (through_a_list, "turns a value into a Python number"),
        (through_a_shape, "shape of a tensor depends on the values"),
    ],
)
def test_programs_with_a_branch_run_eagerly(far: Callable[[Tensor], bool], reason: str) -> None:
    with pytest.warns(Warning, match=reason):
        posterior = ppgp.fit(
            branching(far), {"y": number(6)}, inference.SVI(steps=100, draws=1000), progress=False
        )
    assert any(reason in sentence for sentence in posterior.warnings)
    target = Target(Program(branching(far)), {"y": number(6)}, compile=False)
    z = posterior.draws["z"].flatten()[:50]
    own = torch.stack([target.log_density(value[None]) for value in z])
    torch.testing.assert_close(posterior.stats["lp"].flatten()[:50], own)


@pytest.mark.slow
def test_the_draws_of_a_branch_are_right() -> None:
    with pytest.warns(Warning, match="turns a value into a Python number"):
        posterior = ppgp.fit(
            branching(through_numpy),
            {"y": number(6)},
            inference.NUTS(draws=500, warmup=200),
            progress=False,
        )
    share = float((posterior.draws["z"] > 2.5).double().mean())
    assert share == pytest.approx(tail(6), abs=4 * math.sqrt(tail(6) / 400))


def test_the_mode_of_a_branch_is_right() -> None:
    """The search passes the wall, so that a graph traced before the wall would be wrong."""

    def program(y: Tensor) -> None:
        z = pyro.sample("z", dist.Normal(number(0), number(10)))
        pyro.factor("wall", -50 * (z - 2.5).square() if through_numpy(z) else number(0))
        pyro.sample("y", dist.Normal(z, number(1)), obs=y)

    with pytest.warns(Warning, match=r"come before them\); it runs eagerly"):
        posterior = ppgp.fit(program, {"y": number(6)}, inference.Laplace(draws=20), progress=False)
    precision = 0.01 + 1 + 100
    assert float(posterior.stats["mode"]) == pytest.approx((6 + 250) / precision, abs=1e-4)


# -- messages before a program is fitted -------------------------------------------------


def one_site(y: Any, x: Tensor | None = None, law: Any = dist.Normal) -> None:
    a = pyro.sample("a", law(number(0), number(1)))
    loc = a if x is None else a * x
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(loc, number(1)), obs=y)


@pytest.mark.parametrize(
    "how", [inference.MAP(), inference.NUTS(draws=10, warmup=10, chains=2), inference.SVI(steps=10)]
)
def test_a_law_of_torch_and_data_that_are_no_tensor_are_one_sentence(how: Any) -> None:
    y = numbers(0.2, 0.9, 1.1)
    with pytest.raises(NotApplicable, match=r"pyro\.distributions\.Normal"):
        ppgp.fit(one_site, {"y": y, "law": torch.distributions.Normal}, how, progress=False)
    with pytest.raises(DataError, match="list at 'y'"):
        ppgp.fit(one_site, {"y": y.tolist()}, how, progress=False)


@pytest.mark.parametrize("hole", ["y", "x"])
def test_nan_in_the_arguments_of_a_program_is_named(hole: str) -> None:
    whole, broken = numbers(0.2, 0.9, 1.1), numbers(0.2, math.nan, 1.1)
    with pytest.raises(NumericalError, match=f"1 of 3 numbers in '{hole}'"):
        ppgp.fit(one_site, {"y": whole, "x": whole, hole: broken}, inference.MAP(), progress=False)
