"""StateSpaceGP without a kernel: the candidates for a series, and the choice among them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, kernels, likelihoods, models
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.models.markov import state_space_gp
from ppgp.models.markov.series_rule import Series, shape_of
from ppgp.priors import Normal

F64 = torch.float64
OPTIONS: dict[str, Any] = {"how": inference.MAP(starts=1), "progress": False}


def weekly(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    t = np.arange(float(n))
    y = 40 + 0.1 * t + 8 * np.sin(2 * np.pi * t / 7) + rng.normal(size=n)
    return torch.tensor(t)[:, None], torch.tensor(y)


def leaves(kernel: Any) -> list[kernels.Kernel]:
    inner = getattr(kernel, "children", None) or [getattr(kernel, "kernel", None)]
    found = [leaf for child in inner if child is not None for leaf in leaves(child)]
    return found or [kernel]


def test_a_week_is_found_and_forecast() -> None:
    X, y = weekly(120)
    posterior = ppgp.fit(models.StateSpaceGP(), Dataset(X[:100], y[:100]), **OPTIONS)
    season = [k for k in leaves(posterior.recipe.kernel) if isinstance(k, kernels.Periodic)]
    assert [k.period for k in season] == [7.0]
    errors = posterior.predict(X[100:]).mean - y[100:]
    last = y[100:] - y[99]
    assert float(errors.square().mean()) < 0.1 * float(last.square().mean())


def test_missing_and_irregular_times_keep_the_season() -> None:
    X, y = weekly(140)
    rows = torch.randperm(140, generator=torch.Generator().manual_seed(0))[:100]
    early = 0.1 * torch.linspace(-1, 1, 100, dtype=F64)
    shape = shape_of(Series(X[rows, 0] + early, y[rows]), True)
    assert len(shape.seasons) == 1
    assert shape.seasons[0] == pytest.approx(7.0, rel=0.01)


def test_months_in_days_have_a_year() -> None:
    """Months have 28 to 31 days: the spacing is their mean."""
    days = np.cumsum([31.0, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] * 6)
    rng = np.random.default_rng(0)
    y = np.sin(2 * np.pi * days / 365.25) + 0.1 * rng.normal(size=72)
    shape = shape_of(Series(torch.tensor(days), torch.tensor(y)), False)
    assert shape.seasons[:1] == (pytest.approx(365.25, rel=0.01),)


def test_dates_have_the_periods_of_the_calendar() -> None:
    dates = pd.date_range("2023-01-01", periods=90, freq="D")
    _, y = weekly(90)
    frame = pd.DataFrame({"date": dates, "y": y.numpy()})
    data = Dataset.from_frame(frame, "y", dates="hours")
    kernel = models.StateSpaceGP().candidates(data)[0].kernel
    season = [k for k in leaves(kernel) if isinstance(k, kernels.Periodic)]
    assert [k.period for k in season] == [168.0]


def test_two_seasons_of_hours() -> None:
    rng = np.random.default_rng(1)
    t = np.arange(24.0 * 16)
    y = 3 * np.sin(2 * np.pi * t / 24) + 3 * np.sin(2 * np.pi * t / 168) + rng.normal(size=len(t))
    shape = shape_of(Series(torch.tensor(t), torch.tensor(y)), False)
    assert set(shape.seasons) == {24.0, 168.0}


def test_noise_has_no_season() -> None:
    rng = np.random.default_rng(2)
    t = torch.arange(150, dtype=F64)
    for _ in range(5):
        shape = shape_of(Series(t, torch.tensor(rng.normal(size=150))), False)
        assert shape.sure == 0


def test_growth_in_proportion_is_that_of_the_logarithm() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(96.0)
    y = np.exp(3 + 0.03 * t + 0.3 * np.sin(2 * np.pi * t / 12) + 0.05 * rng.normal(size=96))
    series = Series(torch.tensor(t), torch.tensor(y))
    assert shape_of(series, True).log
    assert not shape_of(series, False).log
    X, flat = weekly(96)
    assert not shape_of(Series(X[:, 0], flat), True).log


def test_the_candidate_of_the_highest_evidence_is_kept() -> None:
    X, y = weekly(40, 3)
    data = Dataset(X, y)
    recipe = models.StateSpaceGP()
    each = [ppgp.fit(one, data, **OPTIONS) for one in recipe.candidates(data)]
    best = max(each, key=lambda posterior: posterior.log_evidence)
    found = ppgp.fit(recipe, data, inference.Laplace(draws=20), progress=False)
    assert found.recipe == best.recipe
    assert found.log_evidence == pytest.approx(best.log_evidence, abs=0.05)
    assert "StateSpaceGP(Constant + Matern(1.5) + Periodic(7) * Matern(1.5))" in repr(found)


def test_a_kernel_of_the_user_is_kept_and_has_no_candidates() -> None:
    X, y = weekly(30)
    model = models.StateSpaceGP(kernels.Matern(2.5))
    posterior = ppgp.fit(model, Dataset(X, y), **OPTIONS)
    assert posterior.recipe == model
    with pytest.raises(NotApplicable, match="without a kernel"):
        model.candidates(Dataset(X, y))


def test_a_constant_series_has_no_candidates() -> None:
    X, y = weekly(20)
    assert models.StateSpaceGP().candidates(Dataset(X, torch.full_like(y, 3.0))) == []


def test_counts_have_candidates_on_the_scale_of_their_logarithm() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(60.0)
    y = rng.poisson(np.exp(2 + 0.8 * np.sin(2 * np.pi * t / 7)))
    data = Dataset(t[:, None], y.astype(float))
    found = models.StateSpaceGP(likelihood=likelihoods.Poisson()).candidates(data)
    assert found
    assert all(isinstance(one, models.LatentStateSpaceGP) for one in found)
    of_classes = models.StateSpaceGP(likelihood=likelihoods.Bernoulli())
    assert of_classes.candidates(Dataset(t[:, None], y % 2.0)) == []


def test_the_prior_of_a_users_noise_stays() -> None:
    X, y = weekly(40)
    found = models.StateSpaceGP(noise=0.5).candidates(Dataset(X, y))
    assert found
    assert all(one.noise == 0.5 and not one.log for one in found)


# -- log y ----------------------------------------------------------------------------------------


def positive(n: int = 40) -> Dataset:
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 10, n))
    return Dataset(t[:, None], np.exp(np.sin(t) + 0.2 * rng.normal(size=n)))


FIXED: dict[str, Any] = {"noise": 0.04, "mean": 0.3}
KERNEL = kernels.Matern(1.5, 1.0, 2.0)
WIDE = KERNEL + kernels.Periodic(0.3, 1.5, 3.0, 8)


@pytest.mark.parametrize("kernel", [KERNEL, WIDE], ids=["states", "matrix"])
def test_log_y_is_a_gp_of_the_logarithm(kernel: kernels.Kernel) -> None:
    data = positive()
    logs = Dataset(data.X, data.y.log())
    ours = models.StateSpaceGP(kernel, **FIXED, log=True)
    theirs = models.GP(kernel, **FIXED)
    jacobian = -float(logs.y.sum())
    expected = theirs.log_evidence(logs) + jacobian
    assert ours.log_evidence(data) == pytest.approx(expected, abs=1e-6)
    options: dict[str, Any] = {"how": inference.MAP(), "progress": False}
    one, two = ppgp.fit(ours, data, **options), ppgp.fit(theirs, logs, **options)
    new = torch.tensor([[2.5], [11.0]], dtype=F64)
    of_y, of_log = one.predict(new), two.predict(new)
    middle = of_log.mean.exp()
    torch.testing.assert_close(of_y.quantile(0.5), middle, rtol=1e-6, atol=1e-8)
    mean = (of_log.mean + 0.5 * of_log.variance).exp()
    torch.testing.assert_close(of_y.mean, mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(one.latent(new).mean, two.latent(new).mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(one.loo().quantile(0.5).log(), two.loo().mean, rtol=1e-5, atol=1e-7)
    with pytest.raises(NotApplicable, match="leave out joint"):
        one.predict(new, joint=True)


def test_log_y_has_no_other_likelihood() -> None:
    with pytest.raises(SettingError, match="log=True without a likelihood"):
        models.StateSpaceGP(KERNEL, likelihood=likelihoods.Poisson(), log=True)


def test_regressors_beside_a_time_have_a_prior() -> None:
    X, y = weekly(60)
    holiday = torch.zeros(60, 1, dtype=F64)
    holiday[::9] = 1.0
    data = Dataset(torch.cat([X, holiday], -1), y + 20 * holiday[:, 0], time=0)
    found = models.StateSpaceGP().candidates(data)
    assert found
    assert all(one.regressors == Normal(0.0, 1.0) and not one.log for one in found)
    season = [k for k in leaves(found[0].kernel) if isinstance(k, kernels.Periodic)]
    assert [k.period for k in season] == [7.0]


def test_log_y_needs_positive_targets() -> None:
    data = Dataset([[0.0], [1.0], [2.0]], [1.0, 0.0, 2.0])
    with pytest.raises(DataError, match="positive targets"):
        ppgp.fit(models.StateSpaceGP(KERNEL, log=True), data, **OPTIONS)


# -- few rows, many states ------------------------------------------------------------------------


def test_rows_by_their_matrix_are_those_of_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = weekly(60)
    season = kernels.Periodic(9.0, 1.2, 7.0)
    wave = season * kernels.Matern(1.5, 1.0, 100.0)
    model = models.StateSpaceGP(kernels.Matern(1.5, 20.0, 30.0) + wave, noise=1.0, mean=43.0)
    data, new = Dataset(X, y), torch.tensor([[-3.0], [20.5], [66.0]], dtype=F64)
    share = season.harmonics_left_out(torch.tensor(1.2, dtype=F64))
    assert float(share) < 1e-7
    posterior = ppgp.fit(model, data, **OPTIONS)
    assert model.by_matrix(60, 1)
    dense = posterior.predict(new), posterior.latent(new), posterior.loo()
    evidence, parts = model.log_evidence(data), posterior.components(new)
    monkeypatch.setattr(state_space_gp, "ROWS_OF_MATRIX", 0)
    assert not model.by_matrix(60, 1)
    states = replace(posterior)
    for one, two in zip(
        (states.predict(new), states.latent(new), states.loo()), dense, strict=True
    ):
        torch.testing.assert_close(one.mean, two.mean, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(one.variance, two.variance, rtol=1e-5, atol=1e-5)
    assert model.log_evidence(data) == pytest.approx(evidence, abs=1e-4)
    for name, part in states.components(new).items():
        torch.testing.assert_close(part.mean, parts[name].mean, rtol=1e-5, atol=1e-4)


def test_the_spacing_is_that_of_most_steps() -> None:
    t = torch.tensor([0.0, 1.0, 2.0, 4.0, 5.0, 9.0, 10.0], dtype=F64)
    assert Series(t, torch.arange(7.0)).spacing == 1.0
    assert math.isclose(Series(t, torch.arange(7.0)).span, 10.0)


@pytest.mark.parametrize("begin", [0.0, 7305.0])
def test_a_forecast_does_not_depend_on_where_time_begins(begin: float) -> None:
    x = torch.arange(60, dtype=F64)
    y = 2 + 0.5 * x + 0.3 * torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=F64)
    average = ppgp.fit_candidates(models.StateSpaceGP(), Dataset((x + begin)[:, None], y))
    forecast = average.predict([[90.0 + begin]])
    assert abs(float(forecast.mean) - 47.0) < 1.0
    assert float(forecast.interval(0.9).width) < 5


def test_the_logarithm_that_a_user_asks_for_is_kept() -> None:
    recipes = models.StateSpaceGP(log=True).candidates(positive())
    assert recipes
    assert all(recipe.log for recipe in recipes)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_rows_without_noise_have_a_forecast() -> None:
    x = torch.arange(60, dtype=F64)
    for y, following in ((2 + 0.5 * x, 32.0), (1 + x % 4, 1.0)):
        average = ppgp.fit_candidates(models.StateSpaceGP(), Dataset(x[:, None], y))
        assert abs(float(average.predict([[60.0]]).mean) - following) < 1
    with pytest.warns(ppgp.errors.ConvergenceWarning, match="candidates, whose density does not"):
        ppgp.fit_candidates(models.StateSpaceGP(), Dataset(x[:, None], 1 + x % 4))


def test_options_of_a_fit_reach_the_candidate_that_is_kept(tmp_path: Path) -> None:
    model, data = models.StateSpaceGP(), Dataset(*weekly(30))
    ppgp.fit(model, data, inference.MAP(), checkpoint=tmp_path / "fit.ckpt", progress=False)
    with pytest.raises(SettingError, match="init with shape"):
        ppgp.fit(model, data, inference.MAP(), init=torch.zeros(99), progress=False)
