"""The factor of the training covariance is kept between predictions of one fit."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import ppgp
from ppgp import Dataset, inference, models
from ppgp.runtime import result_cache
from ppgp.runtime.result_cache import ResultCache

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(40, 2, generator=GENERATOR, dtype=torch.float64)
DATA = Dataset(X, X.sin().sum(1))
NEW = torch.rand(7, 2, generator=GENERATOR, dtype=torch.float64)
OTHER = torch.rand(5, 2, generator=GENERATOR, dtype=torch.float64)


RECIPES: dict[str, Any] = {
    "GP": models.GP(),
    "SGPR": models.SGPR(inducing=8),
    "Kriging": models.Kriging(),
    "universal kriging": models.Kriging(drift=1),
}


@pytest.fixture
def factored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows whenever a model solves the system of the training rows."""
    counts: list[int] = []
    for kind in (models.GP, models.SGPR, models.Kriging):
        monkeypatch.setattr(kind, "training_factor", counted(kind.training_factor, counts))
    return counts


def counted(factor: Any, counts: list[int]) -> Any:
    def counting(self: Any, theta: Any, train: Dataset, *root: Any) -> Any:
        counts.append(1)
        return factor(self, theta, train, *root)

    return counting


def fitted(how: Any = None, recipe: Any = RECIPES["GP"]) -> ppgp.Posterior:
    return ppgp.fit(recipe, DATA, how or inference.MAP(steps=20), progress=False)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("how", [inference.MAP(steps=20), inference.Laplace(draws=12)], ids=repr)
def test_a_second_prediction_factors_nothing_and_is_that_of_a_fresh_copy(
    how: Any, recipe: Any, factored: list[int]
) -> None:
    posterior = fitted(how, recipe)
    first, second, third = (copy.deepcopy(posterior) for _ in range(3))
    assert first.kept.size == 0
    posterior.predict(NEW)
    count = len(factored)
    assert count > 0
    again = posterior.predict(OTHER)
    latent = posterior.latent(OTHER)
    joint = posterior.predict(OTHER, joint=True)
    assert len(factored) == count
    assert torch.equal(again.mean, first.predict(OTHER).mean)
    assert torch.equal(again.std, first.predict(OTHER).std)
    assert torch.equal(latent.std, second.latent(OTHER).std)
    wanted = third.predict(OTHER, joint=True).distribution.scale_tril
    assert torch.equal(joint.distribution.scale_tril, wanted)


@pytest.mark.parametrize("name", ["SGPR", "Kriging"])
def test_a_pickled_posterior_of_another_model_holds_no_factor_either(name: str) -> None:
    posterior = fitted(recipe=RECIPES[name])
    posterior.predict(NEW)
    assert 0 < posterior.kept.size <= posterior.kept.limit
    assert pickle.loads(pickle.dumps(posterior)).kept.size == 0  # noqa: S301


def test_predictions_from_neighbours_share_no_factor(factored: list[int]) -> None:
    posterior = fitted(recipe=models.Kriging(neighbours=5))
    posterior.predict(NEW)
    assert not factored
    assert posterior.kept.size == 0


def test_changed_draws_are_not_predicted_by_the_old_factor() -> None:
    posterior, fresh = fitted(), fitted()
    before = posterior.predict(NEW).mean
    for one in (posterior, fresh):
        one.draws["kernel.lengthscale"].mul_(3.0)
    assert torch.equal(posterior.predict(NEW).mean, fresh.predict(NEW).mean)
    posterior.draws["noise"] = posterior.draws["noise"] * 50
    fresh.draws["noise"] = fresh.draws["noise"] * 50
    assert torch.equal(posterior.predict(NEW).mean, fresh.predict(NEW).mean)
    assert not torch.allclose(posterior.predict(NEW).mean, before)


def test_files_copies_and_pickles_hold_no_factor(tmp_path: Any, factored: list[int]) -> None:
    posterior = fitted()
    size = posterior.save(tmp_path / "plain.safetensors").stat().st_size
    posterior.predict(NEW)
    assert posterior.kept.size > 0
    assert posterior.save(tmp_path / "after.safetensors").stat().st_size == size
    assert copy.deepcopy(posterior.kept).size == 0
    assert pickle.loads(pickle.dumps(posterior.kept)).size == 0  # noqa: S301
    count = len(factored)
    ppgp.load_posterior(tmp_path / "plain.safetensors").predict(NEW)
    assert len(factored) == count + 1


def test_the_limit_bounds_what_is_kept() -> None:
    kept = ResultCache(limit=100)
    small, large = torch.zeros(10).double(), torch.zeros(3).double()
    assert kept.get("small", lambda: (small,))[0] is small
    assert kept.size == 80
    kept.get("large", lambda: (large,))
    assert kept.size == 80
    other = torch.zeros(3).double()
    assert kept.get("large", lambda: (other,))[0] is other
    assert kept.get("small", lambda: (other,))[0] is small
    assert ResultCache(0).get("any", lambda: (small,))[0] is small


def test_inputs_that_are_replaced_or_changed_give_another_result() -> None:
    """The address of a tensor that is gone may be that of the next one."""
    kept = ResultCache()
    for value in range(50):
        x = torch.full((3,), float(value))
        assert torch.equal(kept.get("twice", lambda x=x: (2 * x,), {"x": x})[0], 2 * x)
        x.add_(0.5)
        assert torch.equal(kept.get("twice", lambda x=x: (2 * x,), {"x": x})[0], 2 * x)
    first = kept.get("twice", lambda: (2 * x,), {"x": x})
    assert kept.get("twice", lambda: (torch.zeros(1),), {"x": x})[0] is first[0]


def test_leave_one_out_shares_the_factors_of_predictions(factored: list[int]) -> None:
    posterior = fitted(inference.Laplace(draws=12))
    fresh = copy.deepcopy(posterior)
    posterior.predict(NEW)
    count = len(factored)
    densities, left_out = posterior.pointwise()["y"], posterior.loo()
    assert len(factored) == count > 0
    assert torch.equal(densities, fresh.pointwise()["y"])
    assert torch.equal(left_out.std, fresh.loo().std)


def test_chunks_of_draws_do_not_depend_on_the_number_of_new_rows(
    factored: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppgp.models.exact.gp.CACHED", 5 * 8 * DATA.n**2)  # of five draws
    posterior = fitted(inference.Laplace(draws=12))
    posterior.predict(NEW)
    assert len(factored) == 3
    posterior.predict(NEW[:1].expand(5000, -1))
    assert len(factored) == 3


@pytest.mark.parametrize("limit", [0, 4 * 8 * (DATA.n**2 + DATA.n), 2**29])
def test_threads_and_the_limit_of_what_is_kept_change_no_result(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior = fitted(inference.Laplace(draws=12))
    monkeypatch.setattr("ppgp.models.exact.gp.CACHED", 8 * DATA.n**2)  # one draw at a time
    object.__setattr__(posterior, "kept", ResultCache(limit=0))
    one = posterior.predict(NEW), posterior.predict(NEW, joint=True), posterior.loo()
    monkeypatch.setattr("ppgp.runtime.threads.PIECES_PAY_FROM", 0.0)
    monkeypatch.setattr("ppgp.runtime.threads.threads_allowed", lambda: 3)
    object.__setattr__(posterior, "kept", ResultCache(limit=limit))
    several = posterior.predict(NEW), posterior.predict(NEW, joint=True), posterior.loo()
    assert posterior.kept.size <= limit
    for a, b in zip(one, several, strict=True):
        assert torch.equal(a.distribution.mean, b.distribution.mean)
        assert torch.equal(a.distribution.variance, b.distribution.variance)


@pytest.mark.parametrize("alike", [False, True])
def test_processes_that_compute_together_keep_the_same_results(
    alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with little memory would otherwise wait for others that have kept the result."""
    monkeypatch.setattr(result_cache, "available", lambda device: 0)
    large = torch.zeros(result_cache.SMALL // 8)
    cache, computed = ResultCache(), []

    def compute() -> tuple[torch.Tensor]:
        computed.append(1)
        return (large,)

    for _ in range(2):
        cache.get("sums", compute, alike=alike)
    assert len(computed) == (1 if alike else 2)
