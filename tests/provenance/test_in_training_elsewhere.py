"""Rows that a fit depends on beside its training rows.

It depends on them through numbers estimated from them, a trained network, or ``init``.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, conformal, inference, kernels, models, networks
from ppgp.errors import DataWarning
from ppgp.geostatistics import empirical_variogram, fit_variogram
from ppgp.inference.fitting.fit import found_on
from ppgp.provenance.found_on import MARK, Found, origin_of

F64 = torch.float64
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def surface(n: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    X = 100 * torch.rand(n, 2, generator=generator, dtype=F64)
    y = torch.sin(X[:, 0] / 20) + 0.3 * torch.randn(n, generator=generator, dtype=F64)
    return Dataset(X, y)


TRAIN, CALIBRATION, FRESH = (surface(40, seed) for seed in range(3))


def fitted(model: Any, data: Any = TRAIN, how: Any = None, **options: Any) -> ppgp.Posterior:
    return ppgp.fit(model, data, how or inference.MAP(steps=5), progress=False, **options)


def sentence(posterior: ppgp.Posterior, rows: Dataset) -> str:
    predictive = posterior.predict(rows.X)
    return ppgp.calibrate(conformal.Absolute(), predictive, rows.y)(
        posterior.predict(FRESH.X[:2]), 0.8
    ).guarantee


def variogram(data: Dataset) -> Any:
    return fit_variogram(empirical_variogram(data, lags=8))


RECIPES = {
    "kriging": lambda found: found.kriging(),
    "neighbours": lambda found: models.Kriging(found.variogram, found.nugget, neighbours=20),
    "gp": lambda found: models.GP(found.variogram + kernels.Constant(1.0), noise=found.nugget),
    "the nugget alone": lambda found: models.GP(noise=found.nugget),
}


@quiet
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_rows_of_a_variogram_count_as_used_by_a_fit_with_its_numbers(
    recipe: Any, tmp_path: Path
) -> None:
    """Numbers estimated from the calibration rows make residuals of these rows too small."""
    seen, honest = (fitted(recipe(variogram(data))) for data in (CALIBRATION, TRAIN))
    with pytest.warns(DataWarning, match="40 of 40"):
        assert sentence(seen, CALIBRATION).startswith("heuristic")
    again = ppgp.load_posterior(seen.save(tmp_path / "seen.ppgp"))
    assert sentence(again, CALIBRATION).startswith("heuristic")
    assert sentence(seen, FRESH).startswith("marginal")
    assert sentence(honest, CALIBRATION).startswith("marginal")


@quiet
def test_a_number_with_an_origin_is_that_number() -> None:
    found = variogram(TRAIN)
    plain = float(found.nugget)
    assert found.nugget == plain
    assert (repr(found.nugget), hash(found.nugget)) == (repr(plain), hash(plain))
    assert origin_of(found.nugget).tables == (TRAIN,)
    assert origin_of(copy.deepcopy(found.variogram).lengthscale).tables == (TRAIN,)
    assert (
        kernels.Exponential(found.variogram.variance, float(found.variogram.lengthscale))
        == found.variogram
    )
    assert isinstance(found.variogram.lengthscale, Found)
    assert not isinstance(fit_variogram(empirical_variogram(TRAIN), nugget=0.1).nugget, Found)


@quiet
def test_rows_of_a_pretrained_network_count_as_used() -> None:
    network = networks.pretrained(networks.MLP((4,), 2), CALIBRATION, epochs=1)
    for model in (
        models.GP(kernels.Deep(network, kernels.RBF(), frozen=True)),
        models.GP(kernels.Deep(networks.pretrained(network, TRAIN, epochs=1), kernels.RBF())),
    ):
        posterior = fitted(model)
        assert sentence(posterior, CALIBRATION).startswith("heuristic")
        assert sentence(posterior, FRESH).startswith("marginal")


@quiet
def test_rows_of_the_posterior_in_init_count_as_used() -> None:
    model = models.GP(kernels.RBF())
    before = fitted(model, CALIBRATION)
    begun = fitted(model, init=before)
    assert sentence(begun, CALIBRATION).startswith("heuristic")
    assert sentence(fitted(model, init=begun), CALIBRATION).startswith("heuristic")
    assert sentence(begun, FRESH).startswith("marginal")
    same = fitted(model, init=fitted(model))
    assert same.also_seen == ()
    assert sentence(same, CALIBRATION).startswith("marginal")


def program(x: Tensor, y: Tensor | None = None) -> None:
    weight = pyro.sample("weight", dist.Normal(torch.zeros(2, dtype=F64), 10.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Normal(x @ weight, 1.0), obs=y)


@quiet
def test_rows_of_init_count_as_used_by_a_program() -> None:
    arguments = [{"x": data.X, "y": data.y} for data in (TRAIN, CALIBRATION)]
    begun = fitted(program, arguments[0], init=fitted(program, arguments[1]))
    assert bool(begun.predict(x=CALIBRATION.X).in_training_with(CALIBRATION.y).all())
    assert bool(begun.predict(x=TRAIN.X)[:5].in_training_with(TRAIN.y[:5]).all())
    assert not bool(begun.predict(x=FRESH.X).in_training_with(FRESH.y).any())


@quiet
def test_rows_that_a_model_was_prepared_for_count_as_used() -> None:
    before = fitted(models.Kriging(), CALIBRATION)
    assert sentence(fitted(before.model), CALIBRATION).startswith("heuristic")
    assert sentence(fitted(before.recipe), CALIBRATION).startswith("marginal")
    plain = fitted(models.LinearRegression(), CALIBRATION, standardise=False)
    assert fitted(plain.model, standardise=False).also_seen == ()  # nothing in it comes from rows


@quiet
def test_a_declaration_does_not_override_what_is_known() -> None:
    """Numbers of a variogram of the ranked rows are not fixed beforehand."""
    for data, claims in ((TRAIN, "heuristic"), (FRESH, "marginal")):
        found = variogram(data)
        recipe = models.GP(found.variogram, noise=found.nugget, mean=0.0)
        posterior = fitted(recipe, standardise=False)
        for split in (None, 0.3):
            region = ppgp.full_conformal(posterior, FRESH.X[:2], 0.8, split, fixed_beforehand=True)
            assert region.guarantee.startswith(claims)
        crossed = ppgp.cross_calibrate(
            recipe, TRAIN, inference.MAP(), folds=4, standardise=False, fixed_beforehand=True
        )
        assert crossed(FRESH.X[:2], 0.8).guarantee.startswith("heuristic") == (
            claims == "heuristic"
        )


@quiet
def test_compare_warns_where_test_rows_were_used_in_a_fit() -> None:
    fits = {"gp": fitted(models.GP()), "linear": fitted(models.LinearRegression())}
    some = Dataset(torch.cat([FRESH.X, TRAIN.X[:4]]), torch.cat([FRESH.y, TRAIN.y[:4]]))
    with pytest.warns(DataWarning, match="4 of 44"):
        found = ppgp.compare(fits, test=some, calibration=CALIBRATION, level=0.8)
    assert all(region.guarantee.startswith("heuristic") for region in found.regions.values())
    with pytest.warns(DataWarning, match=r"gp.* 40 of 40"):
        ppgp.compare({"gp": fitted(models.GP(), init=fitted(models.GP(), FRESH))}, test=FRESH)


@quiet
def test_a_file_keeps_the_rows_that_numbers_and_networks_come_from(tmp_path: Path) -> None:
    found = variogram(CALIBRATION)
    recipe = models.GP(found.variogram, noise=found.nugget, mean=0.0)
    posterior = fitted(recipe, CALIBRATION, standardise=False)
    again = ppgp.load_posterior(posterior.save(tmp_path / "numbers"))
    assert again.recipe == posterior.recipe
    for split in (None, 0.3):
        region = ppgp.full_conformal(again, FRESH.X[:2], 0.8, split, fixed_beforehand=True)
        assert "estimated from 40 of the 40 ranked rows" in region.guarantee
    with pytest.warns(DataWarning, match="40 of 40"):
        assert sentence(fitted(again.recipe), CALIBRATION).startswith("heuristic")

    network = networks.pretrained(networks.MLP((4,), 2), CALIBRATION, epochs=1)
    model = models.GP(kernels.Deep(network, kernels.RBF(), frozen=True))
    path = fitted(model).save(tmp_path / "network")
    bare = copy.deepcopy(model)
    for module in bare.kernel.network.modules():
        module.__dict__.pop(MARK, None)
    assert not found_on(bare)
    again = ppgp.load_posterior(path, model=bare)
    assert [table.n for table in found_on(again.recipe)] == [CALIBRATION.n]
