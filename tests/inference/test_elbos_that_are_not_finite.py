"""ELBOs that are not finite: they end no fit, spoil no parameter, and a note counts them."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.inference import SVI
from ppgp.inference.variational.stopping_rule import Plateau
from ppgp.inference.variational.training_loop import SVIOptions, Training, train

PATIENCE = 100
RISE = 2.0**-7  # exact in floating point, as are sums of its multiples


def rising(until: int, steps: int = 1000) -> list[float]:
    """Return ELBOs that rise to a step, and stay there."""
    return [RISE * min(step, until) - 1000.0 for step in range(steps)]


def spoilt(elbos: list[float], *steps: int, by: float = math.nan) -> list[float]:
    return [by if step in steps else elbo for step, elbo in enumerate(elbos)]


def plateau_of(elbos: list[float]) -> Plateau:
    plateau = Plateau(PATIENCE)
    for elbo in elbos:
        plateau.add(elbo)
    return plateau


def trained(elbos: list[float], steps: int | None = None) -> Training:
    """Return a training whose steps have these ELBOs."""
    each = iter(elbos)
    fixed: dict[str, Any] = {"method": "stochastic", "schedule": "constant", "gradient": ""}
    options = SVIOptions(
        steps=steps or len(elbos),
        learning_rate=0.1,
        optimizer="adam",
        particles=1,
        batch_size=None,
        patience=PATIENCE,
        draws=1,
        **fixed,
    )
    return train(options, lambda rate: next(each), False)


@pytest.mark.parametrize("by", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("step", [0, 50, 150, 290, 350, 410])
def test_one_of_them_does_not_move_the_end(step: int, by: float) -> None:
    elbos = rising(300)
    without, others = plateau_of(elbos), plateau_of(spoilt(elbos, step, by=by))
    assert without.reached_at is not None
    assert others.reached_at == without.reached_at
    assert others.last_step(10_000) == without.last_step(10_000)


@pytest.mark.parametrize("step", [0, 50, 150, 500, 999])
def test_elbos_that_rise_reach_no_plateau(step: int) -> None:
    plateau = plateau_of(spoilt(rising(10_000), step))
    assert plateau.reached_at is None
    assert plateau.still_rising(1000)
    last = rising(10_000)[900:]
    finite = last[:-1] if step == 999 else last
    assert plateau.average == sum(finite) / len(finite)


def test_the_shortest_windows_leave_them_out() -> None:
    """Of fewer steps than twice the patience, thirds of the window are compared."""
    level = plateau_of(spoilt(rising(0, 60), 50))
    assert not level.still_rising(60)
    assert plateau_of(spoilt(rising(100, 60), 50)).still_rising(60)
    assert plateau_of(spoilt(rising(100, 5), 4)).still_rising(5)


def test_a_note_counts_those_of_the_whole_run() -> None:
    elbos = rising(300)
    whole = trained(elbos)
    spoilt_run = trained(spoilt(elbos, 120, 150))
    assert len(spoilt_run.history) == len(whole.history) == 600
    assert whole.notes == []
    (note,) = spoilt_run.notes
    assert "not finite in 2 of 600 steps, 0 of them among the last 100" in note


def test_a_note_counts_those_at_the_end() -> None:
    (note,) = trained(spoilt(rising(300), 550)).notes
    assert note == "the ELBO was not finite in 1 of the last 100 steps: check the priors"


def test_a_run_without_a_finite_elbo_ends_early_with_a_note() -> None:
    run = trained([math.nan] * 1000)
    assert len(run.history) == 3 * PATIENCE
    (note,) = run.notes
    assert "not finite in 300 of 300 steps, 100 of them among the last 100" in note
    (note,) = trained([math.nan] * 50).notes
    assert note == "the ELBO was not finite in 50 of the last 50 steps: check the priors"


EDGE = 3.3  # about two posterior standard deviations above the mean


def beside_an_edge(y: Tensor) -> None:
    """Beyond the edge, density and slopes are NaN."""
    mean = pyro.sample("mean", dist.Normal(y.new_zeros(()), 10.0))
    pyro.factor("edge", 0.0 * (EDGE - mean).sqrt())
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


@pytest.mark.parametrize("guide", ["normal", "multivariate_normal"])
def test_a_gradient_that_is_not_finite_spoils_no_parameter(guide: str) -> None:
    y = torch.randn(50, generator=torch.Generator().manual_seed(0)).double()
    y += 3.0 - y.mean()
    how = SVI(guide, steps=4000, patience=250, learning_rate=0.05, draws=200)
    with pytest.warns(ppgp.errors.ConvergenceWarning, match="the ELBO was not finite in"):
        posterior = ppgp.fit(beside_an_edge, {"y": y}, how, progress=False)
    elbos = posterior.stats["elbo_history"]
    assert int((~torch.isfinite(elbos)).sum()) > 0
    assert all(bool(torch.isfinite(value).all()) for value in posterior.theta.values())
    assert float(posterior.theta["mean"].mean()) == pytest.approx(3.0, abs=0.3)
