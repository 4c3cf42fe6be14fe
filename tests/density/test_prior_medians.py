"""Starts at the medians of priors, beside SciPy's quantiles and draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from torch import Tensor

import ppgp
from ppgp import inference, kernels, models, priors
from ppgp.density import Target
from ppgp.models import Program

F64 = torch.float64
ONE = torch.tensor(1.0, dtype=F64)


def begun(program: Callable[..., Any], **arguments: Any) -> dict[str, Tensor]:
    """Return the values of the sites of a program where searches start."""
    target = Target(Program(program), arguments)
    return target.constrain(target.origin())


def of_one(law: Any) -> Tensor:
    """Return where a site with this prior starts."""

    def program(y: Tensor) -> None:
        x = pyro.sample("x", law)
        pyro.sample("y", dist.Normal(x.sum(), 1.0), obs=y)

    return begun(program, y=ONE)["x"]


@pytest.mark.parametrize(
    ("law", "median"),
    [
        (dist.Normal(2.0 * ONE, 3.0), 2.0),
        (dist.LogNormal(2.0 * ONE, 3.0), math.exp(2.0)),
        (dist.HalfNormal(2.0 * ONE), scipy.stats.halfnorm(scale=2).median()),
        (dist.HalfCauchy(5.0 * ONE), 5.0),
        (dist.Exponential(0.1 * ONE), 10 * math.log(2)),
        (dist.Gamma(2.0 * ONE, 0.1), scipy.stats.gamma(2, scale=10).median()),
        (dist.InverseGamma(3.0 * ONE, 2.0), scipy.stats.invgamma(3, scale=2).median()),
        (dist.Beta(2.0 * ONE, 5.0), scipy.stats.beta(2, 5).median()),
        (dist.StudentT(3.0 * ONE, 1.0, 2.0), 1.0),
        (dist.Uniform(2.0 * ONE, 10.0), 6.0),
        (dist.Weibull(2.0 * ONE, 1.5), scipy.stats.weibull_min(1.5, scale=2).median()),
        (dist.Gumbel(1.0 * ONE, 2.0), scipy.stats.gumbel_r(1, 2).median()),
        (dist.Gumbel(100.0 * ONE, 5.0), scipy.stats.gumbel_r(100, 5).median()),
        (dist.Laplace(1.0 * ONE, 2.0), 1.0),
        (
            dist.TransformedDistribution(
                dist.Exponential(ONE), [dist.transforms.AffineTransform(2.0, 3.0)]
            ),
            2 + 3 * math.log(2),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_site_starts_at_the_median_of_its_prior(law: Any, median: float) -> None:
    assert float(of_one(law)) == pytest.approx(median, rel=1e-5)
    several = law.expand([2, 3]).to_event(2)
    assert torch.allclose(of_one(several), torch.full((2, 3), median, dtype=F64), rtol=1e-5)


def test_a_prior_without_quantiles_in_closed_form_starts_at_the_median_of_draws() -> None:
    law = dist.Logistic(3.0 * ONE, 2.0)
    skewed = dist.SoftLaplace(3.0 * ONE, 2.0)
    assert float(of_one(law)) == pytest.approx(3.0, abs=4 * 2 * 2 / 1001**0.5)
    assert float(of_one(skewed)) == pytest.approx(3.0, abs=4 * 2 * 2 / 1001**0.5)


@pytest.mark.parametrize(
    "law", [dist.Gamma(0.001 * ONE, 0.001), dist.InverseGamma(0.001 * ONE, 0.001)]
)
def test_a_prior_that_names_no_scale_starts_at_1(law: Any) -> None:
    """Its median is 1e-299, or 1e299."""
    assert float(of_one(law)) == pytest.approx(1.0)


def test_vectors_start_where_they_did_or_at_their_mean() -> None:
    loc = torch.tensor([1.0, -2.0], dtype=F64)
    assert torch.allclose(of_one(dist.MultivariateNormal(loc, torch.eye(2, dtype=F64))), loc)
    third = torch.full((3,), 1 / 3, dtype=F64)
    assert torch.allclose(of_one(dist.Dirichlet(torch.tensor([1.0, 2.0, 5.0], dtype=F64))), third)
    assert float(of_one(dist.VonMises(1.0 * ONE, 4.0))) == pytest.approx(1.0)
    real = dist.ImproperUniform(dist.constraints.positive, (), ())
    assert float(of_one(real)) == pytest.approx(1.0)


def test_a_hierarchy_starts_at_the_medians_given_the_medians_above() -> None:
    def program(y: Tensor) -> None:
        top = pyro.sample("top", dist.Normal(4.0 * ONE, 1.0))
        spread = pyro.sample("spread", dist.HalfCauchy(3.0 * ONE))
        with pyro.plate("groups", 2):
            middle = pyro.sample("middle", dist.Normal(top, spread))
            with pyro.plate("units", 3):
                low = pyro.sample("low", dist.LogNormal(middle, 0.5))
        width = pyro.sample("width", dist.Uniform(0.0 * ONE, 2 * spread))
        pyro.sample("y", dist.Normal(low.sum() + width, 1.0), obs=y)

    found = begun(program, y=ONE)
    assert float(found["top"]) == pytest.approx(4.0)
    assert float(found["spread"]) == pytest.approx(3.0)
    assert torch.allclose(found["middle"], torch.full((2,), 4.0, dtype=F64))
    assert torch.allclose(found["low"], torch.full((3, 2), math.exp(4.0), dtype=F64))
    assert float(found["width"]) == pytest.approx(3.0)


def test_missing_numbers_and_summed_sites_start_at_medians_too() -> None:
    def imputing(y: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(7.0 * ONE, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.LogNormal(mean, 1.0), obs=y, obs_mask=~y.isnan())

    y = torch.tensor([1.0, math.nan, 2.0], dtype=F64)
    target = Target(Program(imputing), {"y": y})
    values = target.constrain(target.origin())
    assert float(values["mean"]) == pytest.approx(7.0)
    assert float(values["y_unobserved"][1]) == pytest.approx(math.exp(7.0))

    def mixture(y: Tensor) -> None:
        scale = pyro.sample("scale", dist.Gamma(2.0 * ONE, 0.1))
        with pyro.plate("rows", len(y)):
            one = pyro.sample("one", dist.Bernoulli(0.5 * ONE), infer={"enumerate": "parallel"})
            pyro.sample("y", dist.Normal(one, scale), obs=y)

    median = scipy.stats.gamma(2, scale=10).median()
    assert float(begun(mixture, y=y[:1])["scale"]) == pytest.approx(median)


def test_recipes_start_at_the_medians_of_their_priors_and_params_where_they_begin() -> None:
    X = torch.randn(30, 1, dtype=F64, generator=torch.Generator().manual_seed(0))
    data = ppgp.Dataset(X, X[:, 0])
    rbf = kernels.RBF(priors.Gamma(2.0, 0.5), priors.LogNormal(1.0, 0.3))
    found = Target(models.GP(rbf, noise=priors.HalfCauchy(0.2)), data)
    values = found.constrain(found.origin())
    assert float(values["kernel.variance"]) == pytest.approx(scipy.stats.gamma(2, scale=2).median())
    assert float(values["kernel.lengthscale"]) == pytest.approx(math.exp(1.0))
    assert float(values["noise"]) == pytest.approx(0.2)

    def program(y: Tensor) -> None:
        a = pyro.param("a", torch.tensor(5.0, dtype=F64))
        pyro.sample("y", dist.Normal(a, pyro.sample("s", dist.HalfCauchy(2.0 * ONE))), obs=y)

    with pyro.get_param_store().scope():
        target = Target(Program(program), {"y": ONE}, optimise_params=True)
        values = target.constrain(target.origin())
    assert float(values["a"]) == 5.0
    assert float(values["s"]) == pytest.approx(2.0)


def test_chains_start_no_farther_from_the_median_than_the_prior_reaches() -> None:
    def program(y: Tensor) -> None:
        narrow = pyro.sample("narrow", dist.LogNormal(3.0 * ONE, 0.05))
        wide = pyro.sample("wide", dist.Normal(0.0 * ONE, 50.0))
        pyro.sample("y", dist.Normal(narrow + wide, 100.0), obs=y)

    target = Target(Program(program), {"y": ONE})
    starts = torch.stack([target.start(seed, 1.0) for seed in range(40)])
    narrow, wide = starts[:, 0] - 3.0, starts[:, 1]
    assert float(narrow.abs().max()) <= 0.05
    assert float(narrow.std()) > 0.02
    assert float(wide.abs().max()) <= 1.0
    assert float(wide.std()) > 0.4


def test_a_median_of_no_finite_density_is_left() -> None:
    """The median of the scale is 1e30, where the density of y in float32 is not finite."""

    def program(y: Tensor) -> None:
        scale = pyro.sample("scale", dist.LogNormal(torch.tensor(60.0), 60.0))
        pyro.sample("y", dist.Normal(0.0, scale.square()), obs=y)

    result = ppgp.fit(program, {"y": torch.tensor(1.0)}, inference.MAP(starts=1), progress=False)
    assert math.isfinite(result.stats["log_density"])


def test_the_start_of_the_user_comes_first() -> None:
    def program(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0 * ONE, 3.0))
        pyro.sample("y", dist.Normal(a**2, 1.0), obs=y)

    for sign in (-1.0, 1.0):
        init = torch.tensor([sign], dtype=F64)
        found = ppgp.fit(program, {"y": 4 * ONE}, inference.MAP(), init=init, progress=False)
        assert float(found.theta["a"]) * sign > 1


def test_equal_names_in_products_are_told_apart() -> None:
    """The second period is not the period of the product, whose name ends alike."""
    X = torch.linspace(0, 40, 60, dtype=F64)[:, None]
    kernel = kernels.RBF() * kernels.Periodic() + kernels.Periodic()
    target = Target(models.GP(kernel), ppgp.Dataset(X, X[:, 0].sin()))
    assert set(target.waves) == {"kernel.0.1.period", "kernel.1.period"}
