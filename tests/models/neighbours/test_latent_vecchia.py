"""Vecchia with any likelihood: the exact process where all rows are neighbours, and many rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, likelihoods
from ppgp.density import Target
from ppgp.errors import ConvergenceWarning, NotApplicable, SettingError
from ppgp.kernels import ARD, RBF, Kernel, Matern
from ppgp.likelihoods import Bernoulli, NegativeBinomial, Poisson, StudentT
from ppgp.models import GP, LatentVecchia, Vecchia
from ppgp.runtime.seeding import seeded

F64 = torch.float64
KERNEL = Matern(1.5, 1.3, 0.3)


def field(n: int, seed: int = 0, lengthscale: float = 0.3) -> tuple[Tensor, Tensor]:
    """Return places on the unit square and a Matern field there."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=F64)
    like = Dataset(X, torch.zeros(n, dtype=F64))
    model = Vecchia(Matern(1.5, 1.0, lengthscale), 0.0, 20, drift="none", mean=0.0)
    with seeded(seed):
        return X, model.prepare(like)._marginal({}, X, None).sample()


def data_for(likelihood: likelihoods.Likelihood, n: int = 150) -> Dataset:
    X, f = field(n)
    generator = torch.Generator().manual_seed(1)
    if isinstance(likelihood, StudentT):
        e = torch.randn(n, generator=generator, dtype=F64)
        return Dataset(X, f + 0.2 * e / torch.rand(n, generator=generator, dtype=F64))
    if isinstance(likelihood, Bernoulli):
        uniform = torch.rand(n, generator=generator, dtype=F64)
        return Dataset(X, (uniform < torch.sigmoid(2 * f)).to(F64))
    return Dataset(X, torch.poisson(f.exp(), generator))


COUNTS = data_for(Poisson())


@pytest.mark.parametrize("n", [60, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "likelihood",
    [Bernoulli(), Poisson(), NegativeBinomial(), StudentT()],
    ids=lambda value: type(value).__name__,
)
def test_with_all_rows_as_neighbours_it_is_the_exact_process(
    likelihood: likelihoods.Likelihood, n: int
) -> None:
    data = data_for(likelihood, n)
    new = torch.rand(15, 2, generator=torch.Generator().manual_seed(2), dtype=F64)
    exact = GP(Matern(1.5), likelihood=likelihood).prepare(data)
    sparse = Vecchia(Matern(1.5), neighbours=n - 1, likelihood=likelihood).prepare(data)
    one, two = (Target(model, data) for model in (exact, sparse))
    z = one.origin() + 0.1
    (value, slopes), (other, others) = one.value_and_grad(z), two.value_and_grad(z)
    assert float(value) == pytest.approx(float(other), abs=1e-7)
    torch.testing.assert_close(slopes, others, rtol=0, atol=1e-6)
    theta = {name: x[None] for name, x in one.constrain(z).items()}
    for found, expected in (
        (sparse.latent(theta, new, data), exact.latent(theta, new, data)),
        (sparse.loo(theta, data), exact.loo(theta, data)),
    ):
        torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.variance, expected.variance, rtol=1e-6, atol=1e-6)
    joint = [m.moments(theta, new, data, True, None)[1] for m in (sparse, exact)]
    torch.testing.assert_close(*joint, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kernel", [Matern(1.5), RBF()], ids=["Matern", "RBF"])
def test_rows_that_coincide_have_a_density_in_single_precision(kernel: Kernel) -> None:
    X = COUNTS.X[:40].repeat(2, 1)
    model = Vecchia(kernel, neighbours=12, likelihood=Poisson())
    values = []
    for dtype in (F64, torch.float32):
        data = Dataset(X.to(dtype), COUNTS.y[:80].to(dtype))
        target = Target(model.prepare(data), data)
        values.append(float(target.value_and_grad(target.origin())[0]))
    # covariances are rounded by 6e-8 of the variance, and scaled by up to the jitter of 1e-5
    assert values[1] == pytest.approx(values[0], rel=2e-3)


def test_rows_left_out_by_an_estimate_are_those_left_out_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large counts tell nearly all about their f, so that 1 - W variance is near 0."""
    X, f = field(500, lengthscale=0.1)
    y = torch.poisson((f + 4).exp(), torch.Generator().manual_seed(1))
    model = Vecchia(Matern(1.5, 1.0, 0.1), neighbours=15, likelihood=Poisson(), mean=4.0)
    data = Dataset(X, y)
    model, theta = model.prepare(data), {"kernel.variance": torch.ones(1, dtype=F64)}
    exact = model.loo(theta, data).log_prob(y)[0]
    for module in ("sparse_laplace", "latent_vecchia"):
        monkeypatch.setattr(f"ppgp.models.neighbours.{module}.MOST_DENSE_COVARIANCE", 100)
    found = model.loo(theta, data).log_prob(y)[0]
    # variances are off by 10 % by draws, and those given the nearest 15 rows by less
    assert float((found - exact).abs().max()) < 0.5
    assert abs(float((found - exact).mean())) < 0.02


def test_vecchia_with_a_likelihood_is_a_latent_vecchia() -> None:
    model = Vecchia(KERNEL, neighbours=10, likelihood=Poisson(), mean=1.0, latent="laplace")
    assert model == LatentVecchia(KERNEL, Poisson(), neighbours=10, mean=1.0)
    assert type(Vecchia(KERNEL, likelihood=None)) is Vecchia


@pytest.mark.parametrize("n", [150, 2100])
def test_it_fits_predicts_and_is_saved(n: int, tmp_path: Path) -> None:
    """2,100 rows are past what dense algebra computes."""
    data = data_for(Poisson(), n)
    model = Vecchia(KERNEL, neighbours=10, likelihood=Poisson(), mean=0.0)
    posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
    assert ("log_density_error" in posterior.stats) == (n > 500)
    new = data.X[:20] + 0.01
    prediction = posterior.predict(new)
    assert bool((prediction.std > prediction.mean.sqrt()).all())  # that of y given f, and of f
    assert posterior.predict(new, joint=True).sample(5).shape == (5, 20)
    assert bool(torch.isfinite(posterior.loo().log_prob(data.y)).all())
    f = posterior.latent(new)
    # a batch of other size may be rounded otherwise: eps times a condition number below 1e6
    few = posterior.latent(new[:3]).variance
    torch.testing.assert_close(few, f.variance[:3], rtol=1e-9, atol=0.0)
    posterior.save(tmp_path / "fit")
    again = ppgp.load_posterior(tmp_path / "fit")
    torch.testing.assert_close(again.predict(new).std, prediction.std)


def test_rows_that_coincide_and_extreme_counts_have_finite_slopes() -> None:
    X = torch.cat([COUNTS.X[:60], COUNTS.X[:60], COUNTS.X[:60]])
    y = torch.cat([COUNTS.y[:60], 0 * COUNTS.y[:60], 1e6 + COUNTS.y[:60]])
    model = Vecchia(Matern(1.5), neighbours=10, likelihood=Poisson())
    target = Target(model.prepare(Dataset(X, y)), Dataset(X, y))
    value, slopes = target.value_and_grad(target.origin())
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(slopes).all())
    theta = {name: x[None] for name, x in target.constrain(target.origin()).items()}
    f = target.model.latent(theta, X, target.data)
    assert bool(torch.isfinite(f.mean).all())
    assert bool((f.variance >= 0).all())


def test_huge_counts_under_a_small_prior_variance_have_a_finite_density() -> None:
    """f must go far from its mean, where conjugate gradients take many steps."""
    X = field(520)[0]
    data = Dataset(X, torch.full((520,), 1e7, dtype=F64))
    model = Vecchia(Matern(2.5), neighbours=10, likelihood=Poisson())
    target = Target(model.prepare(data), data)
    value, slopes = target.value_and_grad(target.origin() - 3)
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(slopes).all())


def test_what_it_refuses() -> None:
    for options, error, sentence in (
        ({"noise": 0.1}, SettingError, "leave noise out"),
        ({"drift": 1}, SettingError, "leave drift out"),
        ({"neighbours": 0}, SettingError, "whole number of neighbours"),
        ({"order": "sorted"}, SettingError, "order of rows"),
        ({"latent": "ep"}, NotApplicable, "latent='laplace' for Vecchia"),
    ):
        given: dict[str, Any] = {"likelihood": Poisson(), **options}
        with pytest.raises(error, match=sentence):
            Vecchia(KERNEL, **given)
    with pytest.raises(SettingError, match="a likelihood beside latent"):
        Vecchia(KERNEL, latent="laplace")
    with pytest.raises(NotApplicable, match="one function of x"):
        Vecchia(KERNEL, likelihood=likelihoods.Categorical())
    with pytest.raises(SettingError, match="fewer neighbours than the 150 rows"):
        ppgp.fit(Vecchia(KERNEL, neighbours=150, likelihood=Poisson()), COUNTS, inference.MAP())
    model = Vecchia(Matern(1.5), likelihood=Poisson())
    for how in (inference.SVI(batch_size=20, steps=2), inference.SGLD(batch_size=20, draws=2)):
        with pytest.raises(NotApplicable, match="full batch"):
            ppgp.fit(model, COUNTS, how, progress=False)


def test_neighbours_follow_the_fit() -> None:
    X, f = field(300)
    X = torch.stack([X[:, 0], 20 * X[:, 1]], 1)
    data = Dataset(X, torch.poisson((1 + f).exp(), torch.Generator().manual_seed(0)))
    model = Vecchia(ARD(Matern(1.5)), neighbours=10, likelihood=Poisson())
    posterior = ppgp.fit(model, data, inference.MAP(starts=1), progress=False, standardise=False)
    middle = {name: value[0] for name, value in posterior.theta.items()}
    assert not posterior.model.outdated(middle, data)


@pytest.mark.slow
def test_intervals_of_a_simulated_field_of_counts_cover_it() -> None:
    """90 % intervals of f at 500 new places cover 84 to 96 %, at the fitted hyperparameters.

    Places near one another share their errors, so that 500 count as about 100: a standard error of
    0.03.
    """
    X, f = field(2600, lengthscale=0.1)
    y = torch.poisson((0.5 + f).exp(), torch.Generator().manual_seed(3))
    data = Dataset(X[:2100], y[:2100])
    model = Vecchia(Matern(1.5), neighbours=10, likelihood=Poisson())
    how = inference.MAP(starts=1)
    posterior = ppgp.fit(model, data, how, progress=False, standardise=False)
    latent = posterior.latent(X[2100:])
    away = (latent.mean - 0.5 - f[2100:]).abs() / latent.std
    assert 0.84 < float((away < 1.6449).to(F64).mean()) < 0.96
    assert float(posterior.draws["kernel.lengthscale"]) == pytest.approx(0.1, rel=0.3)


def test_few_neighbours_are_said() -> None:
    """The field is smooth beside the distances of its rows, and each row has 2 neighbours."""
    few = Vecchia(Matern(2.5, lengthscale=1.0, variance=1.0), neighbours=2, likelihood=Poisson())
    with pytest.warns(ConvergenceWarning, match="given 2 neighbours"):
        ppgp.fit(few, COUNTS, inference.MAP(starts=1), progress=False)
    enough = Vecchia(Matern(1.5), neighbours=15, likelihood=Poisson())
    posterior = ppgp.fit(enough, COUNTS, inference.MAP(starts=1), progress=False)
    assert not any("neighbours" in sentence for sentence in posterior.warnings)


def test_laplace_has_fewer_draws_where_each_costs_a_search() -> None:
    kernel = Matern(1.5, lengthscale=0.3)
    model = Vecchia(kernel, neighbours=5, likelihood=Poisson(), mean=0.0)
    posterior = ppgp.fit(model, COUNTS, inference.Laplace(starts=1), progress=False)
    assert posterior.shape == (1, 100)
    target = Target(posterior.model, posterior.data)
    z = target.unconstrain({name: value[0, :3] for name, value in posterior.draws.items()})
    with_gradients = torch.stack([target.value_and_grad(point)[0] for point in z])
    # the points are rounded on the way to the draws and back
    torch.testing.assert_close(posterior.stats["lp"][0, :3], with_gradients, rtol=1e-10, atol=0.0)
