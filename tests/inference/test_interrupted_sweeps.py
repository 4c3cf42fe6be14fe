"""Ctrl-C in a run of several fits ends the run; it returns the fits that are complete."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

import ppgp
from ppgp import Dataset, inference
from ppgp.density import Target
from ppgp.diagnostics.simulation_based_calibration import FIT_SEED
from ppgp.errors import ConvergenceWarning
from ppgp.estimators import ProbabilisticRegressor
from ppgp.inference import MAP, Ensemble, Exact, Inference, Laplace
from ppgp.inference.base import from_draws
from ppgp.inference.optimise import scipy_search
from ppgp.kernels import RBF, Deep
from ppgp.models import GP, SGPR, SVGP, LinearRegression
from ppgp.priors import InverseGamma

NIG = LinearRegression(noise=InverseGamma(3.0, 1.0), conjugate=True)


def rows(n: int = 40) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return Dataset(X, X[:, 0] + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64))


@dataclass(frozen=True)
class CutShort(Inference):
    """Exact draws; call number ``at`` and all later ones are marked as interrupted."""

    at: int = 0
    calls: Any = field(default_factory=count, compare=False)

    def __call__(
        self, target: Any, *, seed: int = 0, progress: bool = False, init: Any = None
    ) -> ppgp.Posterior:
        exact = Exact(draws=200)(target, seed=seed)
        return from_draws(self, target, exact.draws, 0.0, interrupted=next(self.calls) >= self.at)


def test_simulations_end_with_the_last_complete_fit() -> None:
    with pytest.warns(ConvergenceWarning, match="25 of 40"):
        result = ppgp.sbc(NIG, CutShort(25), 40, progress=False)
    assert result.interrupted
    assert result.simulations == 25
    assert "interrupted" in repr(result)
    every = ppgp.sbc(NIG, CutShort(40), 40, progress=False)
    assert not every.interrupted
    assert all((result.ranks[name] == every.ranks[name][:25]).all() for name in result.ranks)


def test_too_few_simulations_stay_in_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "sbc.jsonl"
    with pytest.raises(KeyboardInterrupt):
        ppgp.sbc(NIG, CutShort(7), 20, checkpoint=path, progress=False)
    assert len(path.read_text().splitlines()) == 1 + 7


@dataclass(frozen=True)
class Waits(Inference):
    """Exact draws; the fit of one seed does not end."""

    seed: int = 0

    def __call__(
        self, target: Any, *, seed: int = 0, progress: bool = False, init: Any = None
    ) -> ppgp.Posterior:
        if seed == self.seed:
            time.sleep(300)
        return Exact(draws=200)(target, seed=seed)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_ends_the_workers(tmp_path: Path) -> None:
    """Ctrl-C comes once all simulations but one are in the file."""
    path = tmp_path / "sbc.jsonl"

    def press() -> None:
        while not path.exists() or len(path.read_text().splitlines()) < 1 + 20:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    started = time.monotonic()
    with pytest.warns(ConvergenceWarning, match="20 of 21"):
        result = ppgp.sbc(NIG, Waits(5 + FIT_SEED), 21, workers=2, checkpoint=path, progress=False)
    assert time.monotonic() - started < 250  # the missing one takes longer
    assert result.interrupted
    assert result.simulations == 20
    assert not multiprocessing.active_children()


def test_cross_calibration_uses_the_complete_folds() -> None:
    data = rows()
    with pytest.warns(ConvergenceWarning, match="4 of 10"):
        result = ppgp.cross_calibrate(NIG, data, CutShort(4))
    assert result.interrupted
    assert len(result.posteriors) == len(result.held_out) == len(result.rows) == 4
    assert result.n == 16
    assert result.promised(0.9) == ppgp.cross_calibrate(
        NIG, data.rows(slice(0, 16)), Exact(), folds=4
    ).promised(0.9)
    assert bool(torch.isfinite(result(data.X[:3], level=0.8).lower).all())
    with pytest.raises(KeyboardInterrupt):
        ppgp.cross_calibrate(NIG, data, CutShort(1))


def test_an_ensemble_keeps_the_complete_members() -> None:
    data = rows()
    with pytest.warns(ConvergenceWarning, match="2 of 5"):
        result = ppgp.fit(NIG, data, Ensemble(CutShort(2), members=5), progress=False)
    assert result.stats["interrupted"]
    assert len(result.stats["seconds"]) == 2
    with pytest.warns(ConvergenceWarning, match="1 of 5"):
        result = ppgp.fit(NIG, data, Ensemble(CutShort(0), members=5), progress=False)
    assert len(result.stats["seconds"]) == 1
    assert not ppgp.fit(NIG, data, Ensemble(CutShort(9), members=2), progress=False).stats[
        "interrupted"
    ]


@pytest.fixture
def cut_maps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupt every search by L-BFGS at its third evaluation."""
    met: list[int] = []

    class Met(scipy_search._Objective):
        calls = 0

        def __call__(self, scaled: Any) -> Any:
            self.calls += 1
            if self.calls == 3:
                met.append(1)
                raise KeyboardInterrupt
            return super().__call__(scaled)

    monkeypatch.setattr(scipy_search, "_Objective", Met)
    return met


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    ("how", "searches"), [(MAP(starts=5), 1), (Laplace(draws=20, starts=5), 2)], ids=repr
)
def test_searches_from_several_starts_end_with_the_interrupted_one(
    how: Inference, searches: int, cut_maps: list[int]
) -> None:
    result = ppgp.fit(GP(RBF()), rows(), how, progress=False)
    assert len(cut_maps) <= searches  # Laplace takes one more step before it expands
    assert result.stats["interrupted"]
    assert result.stats["end_log_densities"].shape == (1,)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    ("model", "how"),
    [(SGPR(inducing=5), MAP()), (SVGP(inducing=5), inference.SVI(steps=5))],
    ids=lambda x: type(x).__name__,
)
def test_an_interrupted_subset_model_ends_the_fit(
    model: Any, how: Inference, cut_maps: list[int]
) -> None:
    big = rows(1200)
    try:
        result = ppgp.fit(model, big, how, progress=False)
    except KeyboardInterrupt:
        assert len(cut_maps) == 1
        return
    assert result.stats["interrupted"] == bool(cut_maps)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_an_interrupted_inner_fit_raises(request: pytest.FixtureRequest) -> None:
    data = rows()
    how = MAP(starts=1, steps=5)
    gp = ppgp.fit(GP(RBF()), data, how, progress=False)
    network = torch.nn.Linear(2, 2, dtype=torch.float64)
    deep = ppgp.fit(GP(Deep(network, RBF(), frozen=True)), data, how, progress=False)
    request.getfixturevalue("cut_maps")
    with pytest.raises(KeyboardInterrupt):
        ppgp.check_network(deep, rows(60).rows(slice(40, 60)))
    with pytest.raises(KeyboardInterrupt):
        ppgp.full_conformal(gp, data.X)
    estimator = ProbabilisticRegressor("gp", "map")
    with pytest.raises(KeyboardInterrupt):  # else the grid search would start its next fit
        estimator.fit(data.X.numpy(), data.y.numpy())
    assert estimator.posterior_.stats["interrupted"]


def test_ctrl_c_at_the_second_derivatives_of_laplace_names_a_method_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(target: Target, z: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(Target, "hessian", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"second derivatives.*MAP"):
        ppgp.fit(LinearRegression(), rows(), Laplace(), progress=False)
