"""``update`` and ``one_step_ahead`` of models with a factor of their training rows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, models, priors
from ppgp.diagnostics.leave_one_out import leave_one_out
from ppgp.errors import DataError, NotApplicable, NotKnown, NumericalError
from ppgp.models.exact.factor_updates import extension
from ppgp.numerics.cholesky import cholesky
from ppgp.runtime.result_cache import ResultCache

N, NEW = 30, 8
G = torch.Generator().manual_seed(0)
X = torch.rand(N + NEW, 2, generator=G, dtype=torch.float64)
Y = 10.0 + 3.0 * X.sin().sum(1) + 0.1 * torch.randn(N + NEW, generator=G, dtype=torch.float64)
PLACES = torch.rand(6, 2, generator=G, dtype=torch.float64)
FIRST, REST = Dataset(X[:N], Y[:N]), Dataset(X[N:], Y[N:])

RECIPES: dict[str, Any] = {
    "GP": models.GP(),
    "a sum with White": models.GP(kernels.ARD(kernels.Matern(1.5)) + kernels.White(0.1)),
    "numbers alone": models.GP(kernels.RBF(1.0, 0.7), 0.1, 0.0),
    "draws of the mean": models.GP(kernels.RBF(1.0, 0.7), 0.1, mean=ppgp.priors.Normal()),
    "SGPR": models.SGPR(inducing=9),
    "simple kriging": models.Kriging(drift="none"),
    "ordinary kriging": models.Kriging(),
    "universal kriging": models.Kriging(drift=1),
    "kriging with neighbours": models.Kriging(neighbours=5),
}


@cache
def fitted(name: str, data: Dataset = FIRST) -> ppgp.Posterior:
    """Return a posterior with three draws, which differ."""
    fit = ppgp.fit(RECIPES[name], data, inference.MAP(steps=3), progress=False)
    factors = torch.tensor([[1.0, 1.2, 0.8]], dtype=torch.float64)
    draws = {}
    for site, value in fit.draws.items():
        draws[site] = value * factors.reshape(1, 3, *(1,) * (value.ndim - 2))
    return replace(fit, draws=draws)


def all_at_once(fit: ppgp.Posterior, data: Dataset) -> ppgp.Posterior:
    """Return the same draws, conditional on other rows."""
    return replace(fit, data=fit.scaler(data))


def close(one: ppgp.Prediction, other: ppgp.Prediction) -> None:
    tolerance = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(one.distribution.mean, other.distribution.mean, **tolerance)
    torch.testing.assert_close(one.distribution.variance, other.distribution.variance, **tolerance)


pytestmark = pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")


@pytest.mark.parametrize("name", RECIPES)
def test_an_update_is_conditioning_on_all_rows_at_once(name: str) -> None:
    fit = fitted(name)
    twice = fit.update(X[N : N + 3], Y[N : N + 3]).update(X[N + 3 :], Y[N + 3 :])
    whole = all_at_once(fit, Dataset(X, Y))
    close(twice.predict(PLACES), whole.predict(PLACES))
    close(twice.latent(PLACES), whole.latent(PLACES))
    if name != "kriging with neighbours":
        close(twice.predict(PLACES, joint=True), whole.predict(PLACES, joint=True))
    assert bool(twice.predict(X).in_training_with(Y).all())
    assert fit.data.n == N


@pytest.mark.parametrize("name", RECIPES)
def test_one_step_ahead_is_predict_and_update_in_turn(name: str) -> None:
    fit = fitted(name)
    if name == "kriging with neighbours":
        with pytest.raises(NotApplicable, match="leave neighbours out"):
            fit.one_step_ahead(REST)
        return
    ahead = fit.one_step_ahead(REST).distribution
    for i in range(NEW):
        row = REST.rows(slice(i, i + 1))
        alone = all_at_once(fit, Dataset(X[: N + i], Y[: N + i])).predict(row.X).distribution
        torch.testing.assert_close(ahead.mean[:, i], alone.mean[:, 0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(ahead.variance[:, i], alone.variance[:, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", [models.GP(noise=0.0), models.Kriging(nugget=0.0)], ids=repr)
def test_rows_with_known_noise(model: Any) -> None:
    sd = torch.linspace(0.05, 0.3, N + NEW, dtype=torch.float64)
    fit = ppgp.fit(model, Dataset(X[:N], Y[:N], noise_sd=sd[:N]), inference.MAP(steps=3))
    found = fit.update(X[N:], Y[N:], noise_sd=sd[N:])
    whole = all_at_once(fit, Dataset(X, Y, noise_sd=sd))
    close(found.predict(PLACES), whole.predict(PLACES))
    ahead, first = (
        fit.one_step_ahead(X[N:], Y[N:], noise_sd=sd[N:]),
        fit.predict(X[N:], noise_sd=sd[N:]),
    )
    torch.testing.assert_close(ahead.mean[0], first.mean[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["GP", "universal kriging", "SGPR"])
def test_the_rows_so_far_are_not_factored_again(name: str, monkeypatch: Any) -> None:
    fit = fitted(name)
    fit.predict(PLACES)
    found = fit.update(REST.rows(slice(0, 4)))
    if name == "SGPR":
        monkeypatch.setattr("ppgp.models.sparse.collapsed_bound.Projection.posterior", None)
    else:
        monkeypatch.setattr("ppgp.models.exact.gp.cholesky", None)
        monkeypatch.setattr("ppgp.models.exact.kriging.cholesky", None)
    found = found.update(REST.rows(slice(4, None)))
    close(found.predict(PLACES), found.predict(PLACES))
    assert bool(torch.isfinite(found.predict(PLACES).mean).all())


def test_chunks_of_draws_and_a_full_store_change_nothing(monkeypatch: Any) -> None:
    fit = fitted("GP")
    wanted = fit.update(REST).predict(PLACES)
    monkeypatch.setattr("ppgp.models.exact.gp.MEMORY_BUDGET", 1)
    close(all_at_once(fit, FIRST).update(REST).predict(PLACES), wanted)
    monkeypatch.setattr(ResultCache.__init__, "__defaults__", (0,))
    close(all_at_once(fit, FIRST).update(REST).predict(PLACES), wanted)


def test_an_updated_posterior_is_saved_with_all_its_rows(tmp_path: Any) -> None:
    found = fitted("GP").update(REST)
    again = ppgp.load_posterior(found.save(tmp_path / "fit.safetensors"))
    close(again.predict(PLACES), found.predict(PLACES))
    assert again.data.n == N + NEW
    assert "log_evidence" not in found.stats


def test_a_repeated_row_without_noise_is_explained() -> None:
    fit = ppgp.fit(models.GP(kernels.RBF(1.0, 0.3), 0.0, 0.0), FIRST, inference.MAP())
    with pytest.raises(NumericalError, match="repeat others"):
        fit.one_step_ahead(FIRST.X[:2], FIRST.y[:2])


def test_the_factor_grows_to_that_of_the_whole_matrix() -> None:
    A = torch.randn(3, 12, 14, generator=G, dtype=torch.float64)
    C = A @ A.mT
    L = cholesky(C[:, :7, :7])
    grown = extension(L, C[:, :7, 7:], C[:, 7:, 7:])
    torch.testing.assert_close(grown.factor(), cholesky(C), rtol=1e-12, atol=1e-12)
    r = torch.randn(3, 12, 2, generator=G, dtype=torch.float64)
    whole = torch.linalg.solve_triangular(cholesky(C), r, upper=False)
    part = torch.linalg.solve_triangular(L, r[:, :7], upper=False)
    torch.testing.assert_close(grown.onward(part, r[:, 7:]), whole[:, 7:], rtol=1e-11, atol=1e-11)
    assert not extension(L, C[:, :7, :2], C[:, :2, :2]).definite


@pytest.mark.parametrize("how", [inference.Laplace(draws=40), inference.NUTS(draws=30, warmup=50)])
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_left_out_rows_of_an_update_are_averaged_over_the_draws(how: inference.Inference) -> None:
    """The draws are those given fewer rows, which importance sampling would not know."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(18, 1, generator=generator, dtype=torch.float64)
    y = torch.sin(6 * rows[:, 0]) + 0.1 * torch.randn(18, generator=generator, dtype=torch.float64)
    fit = ppgp.fit(models.GP(), Dataset(rows[:12], y[:12]), how, progress=False)
    updated = fit.update(rows[12:], y[12:])
    assert updated.stats["updated"] == 12
    (each,) = updated.pointwise().values()
    by_draw = each.flatten(0, 1)
    expected = (by_draw.logsumexp(0) - math.log(len(by_draw))).sum()
    assert leave_one_out(updated).elpd == pytest.approx(float(expected))
    with pytest.raises(NotApplicable, match=r"draws given all rows.*first 12.*fit to all rows"):
        ppgp.psis_loo(updated)


def test_an_update_has_no_information_criterion() -> None:
    flat = models.GP(kernels.RBF(priors.Flat(), priors.Flat()), noise=0.1, mean=0.0)
    rows = torch.linspace(0, 3, 12, dtype=torch.float64)[:, None]
    fit = ppgp.fit(flat, Dataset(rows, rows[:, 0].sin()), inference.MAP(starts=1), progress=False)
    assert math.isfinite(fit.aic)
    with pytest.raises(NotKnown):
        _ = fit.update(rows[:1] + 0.1, [0.0]).aic


def test_a_repeated_row_without_noise_is_refused() -> None:
    model = models.GP(kernels.RBF(1.0, 1.0), noise=0.0)
    rows = torch.tensor([[0.0], [1.0], [2.5]], dtype=torch.float64)
    fit = ppgp.fit(model, Dataset(rows, rows[:, 0]), inference.MAP(), progress=False)
    with pytest.raises(DataError, match="duplicates in rows 0, 3"):
        fit.update([[0.0]], [3.0])
