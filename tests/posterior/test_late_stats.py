"""Statistics of a fit that are computed when they are first read."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ppgp
from ppgp import inference, kernels, models
from ppgp.density.target import Target
from ppgp.posterior.stats import Later, Stats


def counted() -> tuple[Stats, list[int]]:
    calls: list[int] = []

    def compute() -> float:
        calls.append(1)
        return -2.5

    return Stats({"steps": 3, "lp": Later(compute)}), calls


@pytest.mark.parametrize(
    "read",
    [
        lambda stats: stats["lp"],
        lambda stats: stats.get("lp"),
        lambda stats: dict(stats)["lp"],
        lambda stats: {**stats}["lp"],
        lambda stats: list(stats.values())[1],
        lambda stats: dict(stats.items())["lp"],
        lambda stats: (stats | {"draws": 1})["lp"],
        lambda stats: stats.pop("lp"),
        lambda stats: stats.popitem()[1],
        lambda stats: stats.setdefault("lp", 0.0),
        lambda stats: copy.copy(stats)["lp"],
        lambda stats: copy.deepcopy(stats)["lp"],
        lambda stats: pickle.loads(pickle.dumps(stats))["lp"],  # noqa: S301 # its own bytes
    ],
)
def test_every_way_to_a_value_computes_it_once(read: Callable[[Stats], Any]) -> None:
    stats, calls = counted()
    kept = stats | {}
    assert read(stats) == -2.5
    assert kept["lp"] == -2.5  # one value serves both
    assert len(calls) == 1


def test_names_and_other_values_compute_nothing() -> None:
    stats, calls = counted()
    joined = stats | {"steps": 4}
    assert "lp" in joined
    assert list(joined) == ["steps", "lp"]
    assert len(joined) == 2
    assert joined["steps"] == 4
    assert stats.get("draws", 7) == 7
    assert not calls
    assert joined == {"steps": 4, "lp": -2.5}
    assert joined != stats
    assert repr(stats) == "{'steps': 3, 'lp': -2.5}"


def test_laplace_weighs_its_draws_when_their_density_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X = torch.rand(20, 2, generator=torch.Generator().manual_seed(0)).double()
    data = ppgp.Dataset(X, torch.sin(6 * X[:, 0]) + X[:, 1])
    calls: list[int] = []
    own = Target.log_densities

    def watched(target: Target, z: torch.Tensor) -> torch.Tensor:
        calls.append(len(z))
        return own(target, z)

    monkeypatch.setattr(Target, "log_densities", watched)
    recipe = models.GP(kernels.ARD(kernels.RBF()), noise=0.1)
    posterior = ppgp.fit(recipe, data, inference.Laplace(draws=30), progress=False)
    assert {"lp", "log_q"} <= posterior.stats.keys()
    assert not calls
    lp = posterior.stats["lp"]
    assert calls == [30]
    # the program itself at each draw
    target = Target(posterior.model, posterior.data, compile=False)
    z = target.unconstrain(posterior.draws)[0]
    simple = torch.stack([target.log_density(point) for point in z])
    torch.testing.assert_close(lp, simple[None], rtol=1e-9, atol=1e-9)
    posterior.save(tmp_path / "fit.safetensors")
    again = ppgp.load_posterior(tmp_path / "fit.safetensors")
    assert torch.equal(again.stats["lp"], lp)
    assert calls == [30]
