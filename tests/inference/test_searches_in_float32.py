"""Searches in float32 end where rounding errors begin, in about as many steps as in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, likelihoods, models
from ppgp.inference import MAP, Laplace
from ppgp.models import GLM, Model
from ppgp.models.linear import grouped_effects
from ppgp.numerics import latent_mode
from ppgp.priors import Flat, LogNormal, Normal

F32, F64 = torch.float32, torch.float64
EPS = 2.0**-24  # the largest relative error of a rounding to float32
LARGEST_LOG_MEAN = 14.0  # of the counts below, which is |f|
SHAPE = 5.0  # of the negative binomial counts, whose rows have no larger precision


def inputs(n: int, seed: int = 0) -> Tensor:
    """Return three standard normal columns that float32 holds."""
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed)).double()


def counts(rate: Tensor, shape: float = 0.0) -> Tensor:
    """Return Poisson counts, or with a shape negative binomial ones."""
    generator = torch.Generator().manual_seed(1)
    if shape:
        with torch.random.fork_rng():
            torch.manual_seed(2)
            rate = rate * torch.distributions.Gamma(shape, shape).sample(rate.shape)
    return torch.poisson(rate, generator=generator)


def large_counts(log_mean: float) -> tuple[Model, Tensor, Tensor]:
    X = inputs(1000)
    return GLM(likelihoods.Poisson()), X, counts((log_mean + 0.3 * X[:, 0] - 0.2 * X[:, 1]).exp())


def overdispersed() -> tuple[Model, Tensor, Tensor]:
    X = inputs(1000)
    return GLM(likelihoods.NegativeBinomial()), X, counts((13.8 + 0.3 * X[:, 0]).exp(), SHAPE)


def density_near_0() -> tuple[Model, Tensor, Tensor]:
    """Return rows whose log densities cancel, so that their sum is small beside its rounding."""
    X = inputs(20_000)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = torch.distributions.Gamma(3.0, 3 / torch.exp(0.3 * X[:, 0])).sample()
    return GLM(likelihoods.Gamma()), X, 0.235 * y


CASES: dict[str, Callable[[], tuple[Model, Tensor, Tensor]]] = {
    "counts of 1": lambda: large_counts(0.0),
    "counts of 10,000": lambda: large_counts(9.2),
    "counts of 1,000,000": lambda: large_counts(13.8),
    "overdispersed counts": overdispersed,
    "a density near 0": density_near_0,
}


def fits(model: Model, X: Tensor, y: Tensor, how: Any, **roles: Any) -> tuple[Any, Any]:
    """Return the fits in float32 and in float64 to the same numbers."""
    tables = (Dataset(X.float().to(d), y.float().to(d), **roles) for d in (F32, F64))
    single, double = (ppgp.fit(model, table, how, progress=False) for table in tables)
    return single, double


@pytest.mark.parametrize("name", CASES)
def test_newtons_method_for_glms(name: str) -> None:
    """The mode moves by rounding errors of X and of the coefficients w, relative to the spread.

    With r the mean precision of a row, the rounding of f = X w + b, of size EPS |f|, moves the
    mode by EPS |f| sqrt(n r) posterior standard deviations where all rows round the same way.
    At the floor of rounding a gain falls by chance, so that the number of steps varies a little.
    """
    model, X, y = CASES[name]()
    single, double = fits(model, X, y, MAP("newton"))
    assert not single.warnings
    assert float(single.stats["steps"]) <= 2 * float(double.stats["steps"]) + 5
    spread = ppgp.fit(model, double.data, Laplace(draws=1000), standardise=False, progress=False)
    precision = float(y.mean())
    if name == "overdispersed counts":
        precision = min(precision, SHAPE)
    allowed = max(1e-3, EPS * LARGEST_LOG_MEAN * (len(y) * precision) ** 0.5)
    for site, mode in double.theta.items():
        apart = (single.theta[site].double() - mode)[0].abs()
        sd = spread.theta[site].std(0)
        assert bool((apart <= allowed * sd).all()), site


@pytest.mark.parametrize(("rows", "rate"), [(1000, 3.0), (10_000, 100.0), (20_000, 1000.0)])
def test_the_mode_of_groups(rows: int, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The effects of groups take at most twice the steps of Newton's method in float64."""
    taken, whole = [0], grouped_effects._ascended

    def counted(*arguments: Any) -> Any:
        taken[-1] += 1
        return whole(*arguments)

    X, group = inputs(rows), torch.arange(rows) % 20
    y = counts(rate * torch.exp(0.3 * X[:, 0] + 0.2 * group.double().sin()))
    model = GLM(likelihoods.Poisson(), groups={"g": models.Varying("1")})
    monkeypatch.setattr(grouped_effects, "_ascended", counted)
    for dtype in (F64, F32):
        table = Dataset(X.to(dtype), y.to(dtype), groups={"g": [f"level {i}" for i in group]})
        taken.append(0)
        with pytest.warns(ppgp.errors.ConvergenceWarning, match="raise steps"):
            ppgp.fit(model, table, MAP(steps=2), progress=False)
    assert 0 < taken[-1] <= 3 * taken[-2]


@pytest.mark.parametrize("rate", [3.0, 100.0, 1e4])
def test_the_mode_of_a_latent_process(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The latent function takes at most twice the steps of Newton's method in float64."""
    taken, whole = [0], latent_mode._ascended

    def counted(*arguments: Any) -> Any:
        taken[-1] += 1
        return whole(*arguments)

    monkeypatch.setattr(latent_mode, "_ascended", counted)
    x = torch.linspace(0, 1, 60, dtype=F64)[:, None]
    y = counts(rate * torch.exp(torch.sin(6 * x[:, 0])))
    model = models.LatentGP(
        ppgp.kernels.RBF(1.0, LogNormal(-1.6, 0.1)),
        likelihoods.Poisson(),
        mean=math.log(rate),
    )
    for dtype in (F64, F32):
        data = Dataset(x.to(dtype), y.to(dtype))
        taken.append(0)
        target = ppgp.Target(model.prepare(data), data)
        value = target.log_density(target.origin())
        assert bool(torch.isfinite(value))
    assert 0 < taken[-1] <= 3 * taken[-2]


@pytest.mark.parametrize("optimizer", ["gd", "gauss_newton"])
def test_other_searches(optimizer: str) -> None:
    X = inputs(1000)
    chance = torch.sigmoid(X[:, 0])
    y = torch.bernoulli(chance, generator=torch.Generator().manual_seed(3))
    single, double = fits(models.LogisticRegression(), X, y, MAP(optimizer))
    assert not single.warnings
    assert float(single.stats["steps"]) < 200
    assert_same_height(single, double)


def test_newtons_method_by_trust_regions() -> None:
    X = inputs(60)
    y = torch.sin(2 * X[:, 0]) + 0.2 * inputs(60, 1)[:, 0]
    single, double = fits(models.GP(ppgp.kernels.RBF()), X, y, MAP("newton"))
    assert not single.warnings
    assert float(single.stats["steps"]) <= 2 * float(double.stats["steps"]) + 5
    assert_same_height(single, double)


def test_a_step_to_where_the_density_is_not_defined_is_halved() -> None:
    """Beyond eta = 0 the inverse link has no mean, but its derivatives are finite."""
    random = np.random.default_rng(13)
    x = 10 * random.exponential(size=(10, 1))
    y = random.gamma(2.0, 50 / (0.05 + x[:, 0] / x.max()))
    model = GLM(likelihoods.Gamma(shape=2.0, link="inverse"), weight=Flat(), bias=Flat())
    single, double = fits(model, torch.tensor(x), torch.tensor(y), MAP("newton"))
    assert float(single.stats["steps"]) <= 2 * float(double.stats["steps"]) + 5
    assert_same_height(single, double)


def separated() -> tuple[Tensor, Tensor]:
    X = inputs(40)[:, :2]
    return X, (X[:, 0] + 0.3 * X[:, 1] > 0).double()


def test_gains_that_fall_by_a_constant_share_are_no_rounding_errors() -> None:
    """Towards a mode at infinity each gain is a share of 1 / e of the one before."""
    X, y = separated()
    model = models.LogisticRegression(weight=Flat(), bias=Flat())
    for dtype in (F32, F64):
        with pytest.raises(ppgp.errors.ImproperPosterior):
            ppgp.fit(model, Dataset(X.to(dtype), y.to(dtype)), Laplace(), progress=False)


def test_wide_priors_and_separated_classes() -> None:
    """A search that ends a step early, where the curvature is e times as large, is off by 40 %."""
    X, y = separated()
    wide = Normal(0.0, 1e4)
    model = models.LogisticRegression(weight=wide, bias=wide)
    with pytest.warns(ppgp.errors.PpgpWarning, match="separate"):
        single, double = fits(model, X, y, Laplace(draws=100))
    for site, value in double.theta.items():
        ratio = single.theta[site].double().std(0) / value.std(0)
        torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0, atol=0.05)


def far_line(x: Tensor, y: Tensor) -> None:
    level = pyro.sample("level", dist.Normal(x.new_zeros(()), 1000.0))
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(()), 1000.0))
    spread = pyro.sample("spread", dist.LogNormal(x.new_zeros(()), 3.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(level + slope * x, spread), obs=y)


@pytest.mark.parametrize("seed", [82, 174, 275])
def test_steps_that_a_trust_region_rejects_do_not_end_the_search(seed: int) -> None:
    random = np.random.default_rng(seed)
    level, spread = 10 ** random.uniform(0, 2.7), 10 ** random.uniform(-2, 1)
    rows, slope = int(random.choice([5, 50, 500])), 10 ** random.uniform(0, 2)
    x = random.normal(size=rows)
    y = level + slope * x + spread * random.normal(size=rows)
    heights = []
    for dtype in (F32, F64):
        data = {"x": torch.tensor(x).to(dtype), "y": torch.tensor(y).to(dtype)}
        how = MAP("newton", starts=1)
        posterior = ppgp.fit(far_line, data, how, progress=False)
        heights.append(float(posterior.stats["log_density"]))
    assert heights[0] == pytest.approx(heights[1], abs=0.1)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "model", [models.LinearRegression(), models.GP(ppgp.kernels.RBF())], ids=["linear", "GP"]
)
def test_a_hessian_that_is_not_finite_ends_the_search(model: Model, dtype: torch.dtype) -> None:
    """Under a constant y the variance of the noise tends to 0."""
    X = inputs(60)[:, :2].to(dtype)
    with pytest.warns(ppgp.errors.PpgpWarning) as said:
        posterior = ppgp.fit(
            model, Dataset(X, torch.full((60,), 3.0, dtype=dtype)), MAP("newton"), progress=False
        )
    assert any("y is constant" in str(one.message) for one in said)
    assert all(bool(torch.isfinite(value).all()) for value in posterior.theta.values())


def assert_same_height(single: Any, double: Any) -> None:
    """Assert that the search in float32 ends at the height of that in float64, up to rounding."""
    gap = float(double.stats["log_density"]) - float(single.stats["log_density"])
    assert gap < 16 * EPS * abs(float(double.stats["log_density"]))
