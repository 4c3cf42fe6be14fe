"""Refits start from the recipe as it was given, and fixed values in a recipe are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.stats import betabinom
from torch import Tensor, nn

import ppgp
from ppgp import conformal, inference, kernels, models, networks
from ppgp.conformal import full_conformal_sets
from ppgp.conformal.full_conformal_sets import full_system_of
from ppgp.data import Dataset
from ppgp.errors import DataError, NotApplicable, SettingError

quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
FEW = inference.MAP(steps=10)


def surface(n: int, seed: int, size: float = 1.0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    X = size * torch.rand(n, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(4 * X[:, 0] / size) + 0.3 * torch.randn(
        n, generator=generator, dtype=torch.float64
    )
    return Dataset(X, y)


def fitted(model: Any, data: Any, **options: Any) -> ppgp.Posterior:
    return ppgp.fit(model, data, FEW, progress=False, **options)


@quiet
def test_a_posterior_and_its_file_keep_the_recipe_and_the_prepared_model(
    tmp_path: Path,
) -> None:
    posterior = fitted(models.Kriging(), surface(30, 0))
    assert posterior.recipe == models.Kriging()
    assert posterior.model.variogram is not None
    found = ppgp.load_posterior(posterior.save(tmp_path / "kriging.ppgp"))
    assert found.recipe == models.Kriging()
    again = fitted(found.model, surface(20, 1))
    assert again.recipe == models.Kriging()


@quiet
def test_full_conformal_with_a_split_fits_the_recipe_and_not_the_prepared_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []
    plain = full_conformal_sets.fit

    def spied(model: Any, *parts: Any, **options: Any) -> ppgp.Posterior:
        given.append(model)
        return plain(model, *parts, **options)

    monkeypatch.setattr(full_conformal_sets, "fit", spied)
    data = surface(30, 0)
    posterior = fitted(models.Kriging(), data)
    region = ppgp.full_conformal(posterior, data.X[:3] + 0.01, 0.8)
    assert given == [models.Kriging()]
    assert region.guarantee.startswith("marginal coverage >= 0.8")


@quiet
@pytest.mark.parametrize(
    "model", [models.Kriging(), models.SGPR(inducing=5)], ids=["kriging", "sgpr"]
)
def test_the_model_of_a_posterior_is_cross_calibrated_as_it_was_given(model: Any) -> None:
    data = surface(30, 0)
    posterior = fitted(model, data)
    ours = ppgp.cross_calibrate(posterior.model, data, FEW, folds=2)
    theirs = ppgp.cross_calibrate(model, data, FEW, folds=2)
    for a, b in zip(ours.posteriors, theirs.posteriors, strict=True):
        assert a.model == b.model
        if isinstance(model, models.SGPR):
            assert torch.equal(a.model.Z, b.model.Z)
            assert not torch.equal(a.model.Z, posterior.model.Z)
    assert ours(data.X[:2], 0.8).guarantee.startswith("coverage >= ")


@quiet
def test_inducing_inputs_selected_again_remember_the_recipe_too() -> None:
    data = surface(30, 0)
    posterior = fitted(models.SGPR(inducing=5), data)
    theta = {name: value[0] for name, value in posterior.theta.items()}
    moved = posterior.model.reselected(theta, posterior.data)
    assert fitted(moved, data).recipe == models.SGPR(inducing=5)


@quiet
def test_full_conformal_of_kriging_with_a_split_covers() -> None:
    """The sill and the ranges of its priors come from rows that are not ranked."""
    repeats, rows = 6, 80
    hits = 0
    for seed in range(repeats):
        data = surface(40 + rows, seed, 1000.0)
        posterior = fitted(models.Kriging(), data.rows(slice(0, 40)))
        new = data.rows(slice(40, None))
        # 29 rows are ranked: k = 24 of 30
        region = ppgp.full_conformal(posterior, new, 0.8, split=0.275, seed=seed)
        assert region.guarantee.startswith("marginal coverage >= 0.8")
        hits += int(region.covers(new.y).sum())
    one = betabinom(rows, 24, 6)
    assert abs(hits / (rows * repeats) - one.mean() / rows) <= 4 * one.std() / rows / repeats**0.5


# -- fixed values in a recipe --


def kriged(data: Dataset) -> models.Kriging:
    """Return a model whose hyperparameters are numbers, estimated from these rows."""
    return ppgp.fit_variogram(ppgp.empirical_variogram(data)).kriging()


@quiet
def test_numbers_estimated_from_the_ranked_rows_are_heuristic() -> None:
    """In kriging with a fitted variogram no guarantee is exact without a declaration."""
    data = surface(40, 0)
    posterior = ppgp.fit(kriged(data), data, progress=False)
    new = surface(5, 1).X
    for split in (None, 0.3):
        region = ppgp.full_conformal(posterior, new, 0.8, split=split)
        assert region.guarantee.startswith("heuristic")
        assert "fixed_beforehand" in region.guarantee
        assert full_system_of(posterior, new, split).guarantee.startswith("heuristic")
    assert ppgp.cross_calibrate(kriged(data), data, folds=2)(new, 0.8).guarantee.startswith(
        "heuristic"
    )


@quiet
def test_numbers_declared_fixed_beforehand_are_exact() -> None:
    repeats, rows, n = 12, 80, 29
    model = models.Kriging(kernels.Exponential(0.5, 0.4), nugget=0.1)
    hits = 0
    for seed in range(repeats):
        data = surface(n + rows, 50 + seed)
        posterior = ppgp.fit(model, data.rows(slice(0, n)), progress=False)
        new = data.rows(slice(n, None))
        region = ppgp.full_conformal(posterior, new, 0.8, split=None, fixed_beforehand=True)
        assert "exact: hyperparameters fixed beforehand" in region.guarantee
        hits += int(region.covers(new.y).sum())
    one = betabinom(rows, 24, 6)
    assert abs(hits / (rows * repeats) - one.mean() / rows) <= 4 * one.std() / rows / repeats**0.5


@quiet
def test_scaling_by_the_ranked_rows_is_not_fixed_beforehand() -> None:
    data = surface(30, 0)
    gp = models.GP(kernels.RBF(1.0, 0.5), noise=0.1, mean=0.0)
    scaled = ppgp.fit(gp, data, progress=False)
    plain = ppgp.fit(gp, data, progress=False, standardise=False)
    assert ppgp.full_conformal(
        scaled, data.X, 0.8, None, fixed_beforehand=True
    ).guarantee.startswith("heuristic")
    assert "exact" in ppgp.full_conformal(plain, data.X, 0.8, None, fixed_beforehand=True).guarantee
    assert ppgp.full_conformal(
        scaled, data.X, 0.8, 0.3, fixed_beforehand=True
    ).guarantee.startswith("marginal")
    with pytest.raises(SettingError, match="all numbers"):
        ppgp.full_conformal(fitted(models.GP(), data), data.X, 0.8, None, fixed_beforehand=True)


@quiet
def test_a_fixed_number_or_network_needs_a_declaration_and_a_zero_does_not() -> None:
    data = surface(30, 0)
    network = nn.Sequential(nn.Linear(2, 2, dtype=torch.float64))
    for kernel, claims in (
        (kernels.RBF(), True),
        (kernels.RBF(lengthscale=0.5), False),
        (kernels.Deep(network, kernels.RBF()), False),
        (kernels.Deep(networks.MLP((3,), 2), kernels.RBF()), True),
    ):
        posterior = fitted(models.GP(kernel, mean=0.0), data)
        region = ppgp.full_conformal(posterior, data.X[:2] + 0.01, 0.8)
        assert region.guarantee.startswith("marginal" if claims else "heuristic")
        region = ppgp.full_conformal(posterior, data.X[:2] + 0.01, 0.8, fixed_beforehand=True)
        assert region.guarantee.startswith("marginal")


# -- cross-conformal prediction --


def uneven(n: int, seed: int) -> Dataset:
    """Return rows whose known noise differs much between rows."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    sd = torch.where(torch.rand(n, generator=generator) < 0.5, 0.05, 5.0).double()
    y = torch.sin(6 * X[:, 0]) + sd * torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(X, y, noise_sd=sd)


@quiet
def test_cross_calibration_keeps_the_known_noise_of_the_rows_left_out() -> None:
    """Scores are in units of the predictive sd.

    Without the noise of the rows left out the sets are some twenty times as wide.
    """
    repeats, hits, widths = 4, 0, []
    model = models.GP(noise=0)
    for seed in range(repeats):
        data, new = uneven(40, seed), uneven(100, 100 + seed)
        cross = ppgp.cross_calibrate(model, data, FEW, conformal.Normalized(), folds=4)
        region = cross(new, 0.8)
        assert cross.promised(0.8) > 0
        assert region.guarantee.startswith("coverage >= ")
        hits += int(region.covers(new.y).sum())
        assert new.noise_sd is not None
        widths.append(float(region.width[new.noise_sd < 1].median()))
        torch.testing.assert_close(cross(new.X, 0.8, noise_sd=new.noise_sd).width, region.width)
    assert np.median(widths) < 5.0
    assert hits / (100 * repeats) >= 0.6
    with pytest.raises(DataError, match="noise_sd of the new rows"):
        cross(new.X, 0.8)


def line(x: Tensor, y: Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Normal(slope * x, 1.0), obs=y)


def test_a_program_is_refused_by_methods_that_refit_rows() -> None:
    x = torch.linspace(0, 1, 12, dtype=torch.float64)
    with pytest.raises(NotApplicable, match="calibrate"):
        ppgp.cross_calibrate(line, {"x": x, "y": x})
    with pytest.raises(NotApplicable, match="calibrate"):
        ppgp.cross_calibrate(models.GP(), {"x": x, "y": x})


@quiet
def test_a_guaranteed_coverage_of_0_or_less_is_none() -> None:
    data = surface(12, 0)
    region = ppgp.cross_calibrate(models.LinearRegression(), data, FEW, folds=3)(data.X, 0.5)
    assert region.guarantee.startswith("none")
