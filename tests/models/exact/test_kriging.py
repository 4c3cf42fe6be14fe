"""Kriging against a GP, the definition of REML by contrasts, dense solves, and GSLIB's KT3D."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference, kernels, models, priors
from ppgp.conformal.full_conformal_closed_form import leave_one_out_parts
from ppgp.data import Dataset
from ppgp.distributions.distributions import TrendMarginal
from ppgp.errors import DataError, NotApplicable, NumericalError, SettingError
from ppgp.kernels import Anisotropy, Exponential, LinearVariogram, Matern, Spherical, White
from ppgp.models.exact import kriging
from ppgp.runtime.seeding import seeded

GENERATOR = torch.Generator().manual_seed(0)
X = 10 * torch.rand(30, 2, generator=GENERATOR, dtype=torch.float64)
Y = 3 + 0.5 * X[:, 0] + torch.randn(30, generator=GENERATOR, dtype=torch.float64)
NEW = 10 * torch.rand(9, 2, generator=GENERATOR, dtype=torch.float64)
DATA = Dataset(X, Y)
KERNEL = Matern(1.5, variance=1.4, lengthscale=2.0)
DRIFTS = ["none", "constant", 1, 2, (1,), torch.sin]
every_drift = pytest.mark.parametrize("drift", DRIFTS, ids=lambda d: getattr(d, "__name__", str(d)))
THETA = {
    "variogram.variance": torch.linspace(0.5, 2.0, 4, dtype=torch.float64),
    "variogram.lengthscale": torch.linspace(1.0, 3.0, 4, dtype=torch.float64),
    "nugget": torch.linspace(0.1, 0.4, 4, dtype=torch.float64),
}


def gls(
    model: models.Kriging, X: Tensor, y: Tensor, F: Tensor, new: Tensor, F_new: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of f from the bordered system [C F; F' 0] of universal kriging."""
    n, p = F.shape
    C = model.kernel({}, X) + cast(float, model.nugget) * torch.eye(n, dtype=X.dtype)
    K = model.kernel({}, X, new)
    A = torch.zeros(n + p, n + p, dtype=X.dtype)
    A[:n, :n], A[:n, n:], A[n:, :n] = C, F, F.mT
    right = torch.cat([K, F_new.mT])
    weights = torch.linalg.solve(A, right)
    return weights[:n].mT @ y, model.kernel.diag({}, new) - (weights * right).sum(0)


def test_simple_kriging_is_a_gp_with_the_same_covariance() -> None:
    gp, simple = (
        models.GP(KERNEL, noise=0.2, mean=3.0),
        models.Kriging(KERNEL, 0.2, "none", mean=3.0),
    )
    for joint in (False, True):
        one, two = (
            gp.predict({}, NEW, DATA, joint=joint),
            simple.predict({}, NEW, DATA, joint=joint),
        )
        torch.testing.assert_close(one.mean, two.mean)
        torch.testing.assert_close(one.variance, two.variance)
    torch.testing.assert_close(gp.loo({}, DATA).mean, simple.loo({}, DATA).mean)
    torch.testing.assert_close(
        gp.latent({}, NEW, DATA).variance, simple.latent({}, NEW, DATA).variance
    )


def test_universal_kriging_is_the_limit_of_a_wide_prior_on_the_trend() -> None:
    """With prior variance v of the trend the error is of order 1 / v, and the rounding eps v."""
    v = 1e5
    wide = models.GP(KERNEL + kernels.Constant(v) + kernels.Linear(v), noise=0.2)
    distribution, limit = (
        models.Kriging(KERNEL, 0.2, 1).predict({}, NEW, DATA),
        wide.predict({}, NEW, DATA),
    )
    torch.testing.assert_close(distribution.mean, limit.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(distribution.variance, limit.variance, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "drift", [0, "constant", 1, 2, torch.sin], ids=["0", "constant", "1", "2", "sin"]
)
def test_the_bordered_system_has_the_same_solution(
    drift: models.exact.drift.Drift,
) -> None:
    """The monomials here are neither centred nor scaled: only their span matters."""

    def F(Z: Tensor) -> Tensor:
        one, (a, b) = torch.ones_like(Z[:, :1]), (Z[:, :1], Z[:, 1:])
        if callable(drift):
            return torch.cat([one, drift(Z)], 1)
        columns: dict[Any, list[Tensor]] = {
            0: [one],
            "constant": [one],
            1: [one, a, b],
            2: [one, a, b, a * a, a * b, b * b],
        }
        return torch.cat(columns[drift], 1)

    model = models.Kriging(KERNEL, 0.2, drift)
    mean, variance = gls(model, X, Y, F(X), NEW, F(NEW))
    distribution = model.latent({}, NEW, DATA)
    torch.testing.assert_close(distribution.mean[0], mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(distribution.variance[0], variance, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("p", [1, 3])
def test_reml_is_the_density_of_any_complete_set_of_contrasts(p: int) -> None:
    """They agree up to |B'B| and |F'F|, which are constants; the integral over beta agrees too."""
    F = torch.cat([torch.ones(30, 1, dtype=X.dtype), X], 1)[:, :p]
    B = torch.randn(30, 30 - p, generator=torch.Generator().manual_seed(1), dtype=X.dtype)
    B = B - F @ torch.linalg.lstsq(F, B).solution
    shift = 0.5 * (B.mT @ B).logdet() - 0.5 * (F.mT @ F).logdet()
    for variance in (0.5, 2.0):
        C = replace(KERNEL, variance=variance)({}, X) + 0.3 * torch.eye(30, dtype=X.dtype)
        result = TrendMarginal(torch.zeros_like(Y), C, F).log_prob(Y)
        distribution = torch.distributions.MultivariateNormal(
            torch.zeros(30 - p, dtype=X.dtype), B.mT @ C @ B
        )
        torch.testing.assert_close(
            result, distribution.log_prob(B.mT @ Y) + shift, rtol=1e-9, atol=1e-8
        )
        inverse = torch.linalg.inv(C)
        G = F.mT @ inverse @ F
        Q = inverse - inverse @ F @ torch.linalg.inv(G) @ F.mT @ inverse
        integral = -0.5 * ((30 - p) * math.log(2 * math.pi) + C.logdet() + G.logdet() + Y @ Q @ Y)
        torch.testing.assert_close(result, integral, rtol=1e-9, atol=1e-8)
        beta = torch.linalg.solve(G, F.mT @ inverse @ Y)
        best = torch.distributions.MultivariateNormal(F @ beta, C).log_prob(Y)
        torch.testing.assert_close(
            TrendMarginal(torch.zeros_like(Y), C, F, profile=True).log_prob(Y), best
        )


@pytest.mark.parametrize("profile", [False, True])
def test_the_densities_have_correct_second_derivatives(profile: bool) -> None:
    F = torch.cat([torch.ones(6, 1, dtype=X.dtype), X[:6]], 1)

    def density(log_scale: Tensor, y: Tensor) -> Tensor:
        C = KERNEL({}, X[:6]) * log_scale.exp() + 0.3 * torch.eye(6, dtype=X.dtype)
        return TrendMarginal(torch.zeros_like(y), C, F, profile).log_prob(y)

    inputs = (torch.tensor(0.3, dtype=X.dtype, requires_grad=True), Y[:6].clone().requires_grad_())
    assert torch.autograd.gradcheck(density, inputs)
    assert torch.autograd.gradgradcheck(density, inputs)


@every_drift
def test_closed_form_leave_one_out_equals_n_refits(drift: models.exact.drift.Drift) -> None:
    model = models.Kriging(KERNEL, 0.2, drift)
    distribution = model.loo({}, DATA)
    for i in range(DATA.n):
        refit = model.predict({}, X[i : i + 1], DATA.rows([j for j in range(DATA.n) if j != i]))
        torch.testing.assert_close(distribution.mean[0, i], refit.mean[0, 0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(
            distribution.variance[0, i], refit.variance[0, 0], rtol=1e-8, atol=1e-8
        )


@every_drift
def test_a_block_has_the_mean_and_variance_of_its_average(drift: models.exact.drift.Drift) -> None:
    model = models.Kriging(Matern(1.5), drift=drift)
    blocks = ppgp.discretised(NEW, (2.0, 1.0), (3, 2))
    assert blocks.shape == (9, 6, 2)
    torch.testing.assert_close(blocks.mean(1), NEW)
    distribution = model.block(THETA, blocks, DATA)
    for m, block in enumerate(blocks):
        joint = cast(Any, model.predict(THETA, block, DATA, joint=True))
        torch.testing.assert_close(distribution.mean[:, m], joint.mean.mean(-1))
        covariance = joint.covariance_matrix - THETA["nugget"][:, None, None] * torch.eye(
            6, dtype=X.dtype
        )
        torch.testing.assert_close(
            distribution.variance[:, m], covariance.mean((-2, -1)), rtol=1e-7, atol=1e-9
        )


@every_drift
def test_all_rows_as_neighbours_equal_global_kriging(
    drift: models.exact.drift.Drift, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.Kriging(Matern(1.5), drift=drift)
    whole, blocks = model.predict(THETA, NEW, DATA), ppgp.discretised(NEW, (2.0, 1.0), (2, 2))
    mean, variance = model._means(THETA, blocks, DATA)
    monkeypatch.setattr(kriging, "MEMORY_BUDGET", 1)  # so that places are solved one at a time
    torch.testing.assert_close(
        replace(model, neighbours=30).predict(THETA, NEW, DATA).mean, whole.mean
    )
    local = replace(model, neighbours=30)._local(THETA, blocks, DATA, None)
    torch.testing.assert_close(local[0], mean)
    torch.testing.assert_close(local[1], variance)


@pytest.mark.parametrize(
    "kernel",
    [
        Anisotropy(Exponential(variance=1.0)),
        kernels.ARD(kernels.RBF(lengthscale=2.0)) + White(0.1),
        kernels.Scale(Spherical(1.0)) * kernels.Constant(2.0) + LinearVariogram(),
    ],
    ids=["anisotropy", "ard", "sums"],
)
def test_neighbourhoods_accept_every_kernel(kernel: kernels.Kernel) -> None:
    model = models.Kriging(kernel)
    distribution = torch.distributions.LogNormal(torch.zeros(3, dtype=X.dtype), 0.3)
    with seeded(0):
        theta = {
            name: distribution.sample(s.shape).movedim(-1, 0)
            for name, s in model.sites(2).items()
            if not s.fixed
        }
    blocks = ppgp.discretised(NEW, (2.0, 1.0), (2, 2))
    whole, local = (
        model._means(theta, blocks, DATA),
        replace(model, neighbours=30)._local(theta, blocks, DATA, None),
    )
    torch.testing.assert_close(local[0], whole[0])
    torch.testing.assert_close(local[1], whole[1])


def test_few_neighbours_equal_kriging_from_those_rows() -> None:
    model = models.Kriging(Matern(1.5), drift="constant", neighbours=6)
    distribution, loo = model.predict(THETA, NEW, DATA), model.loo(THETA, DATA)
    for m, x in enumerate(NEW):
        near = (X - x).norm(dim=1).argsort()[:6]
        alone = replace(model, neighbours=None).predict(THETA, x[None], DATA.rows(near))
        torch.testing.assert_close(distribution.mean[:, m], alone.mean[:, 0])
        torch.testing.assert_close(distribution.variance[:, m], alone.variance[:, 0])
    for i in (0, 17):
        near = (X - X[i]).norm(dim=1).argsort()[1:7]
        alone = replace(model, neighbours=None).predict(THETA, X[i : i + 1], DATA.rows(near))
        torch.testing.assert_close(loo.mean[:, i], alone.mean[:, 0])
        torch.testing.assert_close(loo.variance[:, i], alone.variance[:, 0])
    with pytest.raises(NotApplicable, match="joint"):
        model.predict(THETA, NEW, DATA, joint=True)


def test_neighbours_on_one_line_do_not_determine_a_plane() -> None:
    line = Dataset(torch.stack([X[:, 0], X[:, 0]], 1), Y)
    with pytest.raises(NumericalError, match="more neighbours"):
        models.Kriging(KERNEL, 0.2, 1, neighbours=5).predict({}, NEW, line)
    with pytest.raises(DataError, match="depend on one another"):
        models.Kriging(KERNEL, 0.2, 1).prepare(line)


def test_chunks_of_draws_do_not_change_the_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.Kriging(Matern(1.5), drift=1)
    whole, loo, joint = (
        model.predict(THETA, NEW, DATA),
        model.loo(THETA, DATA),
        model.predict(THETA, NEW, DATA, joint=True),
    )
    monkeypatch.setattr(kriging, "MEMORY_BUDGET", 1)
    torch.testing.assert_close(model.predict(THETA, NEW, DATA).variance, whole.variance)
    torch.testing.assert_close(model.loo(THETA, DATA).mean, loo.mean)
    again: Any = model.predict(THETA, NEW, DATA, joint=True)
    torch.testing.assert_close(again.covariance_matrix, cast(Any, joint).covariance_matrix)


def test_the_trend_equals_generalised_least_squares() -> None:
    model = models.Kriging(KERNEL, 0.2, 1)
    C = KERNEL({}, X) + 0.2 * torch.eye(30, dtype=X.dtype)
    F, new = (torch.cat([torch.ones_like(Z[:, :1]), Z], 1) for Z in (X, NEW))
    G = torch.linalg.inv(F.mT @ torch.linalg.solve(C, F))
    distribution = model.trend({}, NEW, DATA)
    torch.testing.assert_close(distribution.mean[0], new @ G @ F.mT @ torch.linalg.solve(C, Y))
    torch.testing.assert_close(distribution.variance[0], ((new @ G) * new).sum(1))


def test_full_conformal_uses_the_predictions_of_kriging() -> None:
    for drift in ("none", 1):
        model = models.Kriging(KERNEL, 0.2, drift)
        parts = leave_one_out_parts(*cast(Any, model.gaussian({}, NEW, DATA)))
        distribution, loo = model.predict({}, NEW, DATA), model.loo({}, DATA)
        torch.testing.assert_close(parts.mean, distribution.mean[0])
        torch.testing.assert_close(parts.variance, distribution.variance[0])
        torch.testing.assert_close(1 / parts.d, loo.variance[0])


def test_ordinary_kriging_uses_only_the_linear_variogram() -> None:
    """The origin has no effect, and the bordered system has -slope h in place of a covariance."""
    model = models.Kriging(LinearVariogram(0.7), 0.1)
    here, far = model.latent({}, NEW, DATA), model.latent({}, NEW + 1000, Dataset(X + 1000, Y))
    torch.testing.assert_close(here.mean, far.mean)
    torch.testing.assert_close(here.variance, far.variance)
    A = torch.ones(31, 31, dtype=X.dtype)
    A[:30, :30] = -0.7 * torch.cdist(X, X) + 0.1 * torch.eye(30, dtype=X.dtype)
    A[30, 30] = 0
    right = torch.cat([-0.7 * torch.cdist(X, NEW), torch.ones(1, 9, dtype=X.dtype)])
    weights = torch.linalg.solve(A, right)
    torch.testing.assert_close(here.mean[0], weights[:30].mT @ Y)
    torch.testing.assert_close(here.variance[0], -(weights * right).sum(0))


def test_an_external_drift_is_not_a_coordinate() -> None:
    height = torch.sin(X[:, :1])
    with_column = Dataset(torch.cat([X, height], 1), Y)
    one = models.Kriging(KERNEL, 0.2, (2,)).predict(
        {}, torch.cat([NEW, torch.sin(NEW[:, :1])], 1), with_column
    )
    two = models.Kriging(KERNEL, 0.2, lambda Z: torch.sin(Z[:, 0])).predict({}, NEW, DATA)
    torch.testing.assert_close(one.mean, two.mean)
    torch.testing.assert_close(one.variance, two.variance)


def test_reml_is_unbiased_and_ml_is_not() -> None:
    """The sill of white noise is the variance with denominator n - p by REML, and n by ML."""
    noise = models.Kriging(White(priors.Flat()), 1e-12, 1)
    F = torch.cat([torch.ones_like(X[:, :1]), X], 1)
    residual = Y - F @ torch.linalg.lstsq(F, Y[:, None]).solution[:, 0]
    for estimator, divisor in (("reml", 27), ("ml", 30)):
        fit = ppgp.fit(replace(noise, estimator=estimator), DATA, inference.MAP(), progress=False)
        assert float(fit.draws["variogram.variance"]) == pytest.approx(
            float(residual.square().sum()) / divisor, rel=1e-4
        )


def test_missing_priors_are_centred_on_the_data() -> None:
    far = Dataset(100 * X, 50 * Y)
    one, two = (models.Kriging().prepare(d) for d in (DATA, far))
    assert isinstance(one.variogram, Exponential)
    assert isinstance(two.variogram, Exponential)
    for name, factor in (("variance", 2500), ("lengthscale", 100)):
        step = getattr(two.variogram, name).loc - getattr(one.variogram, name).loc
        assert step == pytest.approx(math.log(factor))
    assert one.prepare(DATA) == one


def test_rows_at_one_place_need_a_nugget() -> None:
    twice = Dataset(torch.cat([X, X[3:4]]), torch.cat([Y, Y[3:4] + 1]))
    with pytest.raises(DataError, match="duplicates in rows 3, 30"):
        models.Kriging(KERNEL, 0.0).prepare(twice)
    merged = Dataset(X, Y.index_add(0, torch.tensor([3]), torch.tensor([0.5], dtype=X.dtype)))
    one = models.Kriging(KERNEL, 0.2).prepare(twice).latent({}, NEW, twice)
    half = torch.full((30,), 0.2, dtype=X.dtype).index_fill(0, torch.tensor([3]), 0.1)
    A = torch.ones(31, 31, dtype=X.dtype)
    A[:30, :30] = KERNEL({}, X) + half.diag()
    A[30, 30] = 0
    weights = torch.linalg.solve(
        A, torch.cat([KERNEL({}, X, NEW), torch.ones(1, 9, dtype=X.dtype)])
    )
    torch.testing.assert_close(one.mean[0], weights[:30].mT @ merged.y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drift": "linear"}, "a degree"),
        ({"drift": -1}, "a degree"),
        ({"drift": (1, 1)}, "columns of X"),
        ({"estimator": "mle"}, '"reml" or "ml"'),
        ({"neighbours": 0}, "1 or more"),
        ({"mean": 2.0}, 'drift="none"'),
    ],
)
def test_an_invalid_option_raises_a_clear_error(options: dict, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        models.Kriging(**options)


def test_an_invalid_drift_or_block_raises_a_clear_error() -> None:
    with pytest.raises(DataError, match="name columns"):
        models.Kriging(drift=(7,)).prepare(DATA)
    with pytest.raises(DataError, match="correct the function"):
        models.Kriging(drift=lambda Z: Z[:3]).prepare(DATA)
    with pytest.raises(SettingError, match="at least 3 neighbours"):
        models.Kriging(drift=1, neighbours=2).prepare(DATA)
    with pytest.raises(DataError, match="simpler drift"):
        models.Kriging(drift=3).prepare(DATA.rows(slice(0, 5)))
    fit = ppgp.fit(models.Kriging(), DATA, inference.MAP(), progress=False)
    with pytest.raises(DataError, match="discretised"):
        ppgp.block_kriging(fit, NEW)
    assert len(ppgp.block_kriging(fit, ppgp.discretised(NEW, (1.0, 1.0)))) == 9
    gp = ppgp.fit(models.GP(), DATA, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match=r"fit models\.Kriging"):
        ppgp.block_kriging(gp, NEW[:, None])
