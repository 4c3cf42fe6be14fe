"""Searches of few steps from several starts: when one is given up, and which go on to a mode."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference, kernels, likelihoods, models
from ppgp.data.arguments import Arguments
from ppgp.density.target import Target
from ppgp.inference.optimise.scipy_search import lbfgs, trust_region_newton
from ppgp.inference.optimise.search import (
    GIVEN_UP,
    LITTLE_GAIN,
    RECENT,
    SHORT_OF_STEPS,
    Few,
    SearchOptions,
    SearchResult,
)
from ppgp.inference.optimise.search_starts import UNDECIDED, best_of, plan_of_starts
from ppgp.models import Program

F64 = torch.float64
START = [-1.2, 1.0]
MODE = torch.ones(2)
DTYPES = pytest.mark.parametrize("dtype", [F64, torch.float32], ids=str)


def valley(one: Tensor) -> None:
    """Minus the function of Rosenbrock (1960): a search follows a bent valley for long."""
    x = pyro.sample("x", dist.Normal(one, 0.5**0.5))
    pyro.sample("y", dist.Normal(x**2, 0.005**0.5))


def target_of(dtype: torch.dtype) -> Target:
    return Target(Program(valley), Arguments({"one": torch.ones((), dtype=dtype)}))


def searched(dtype: torch.dtype, few: Few | None, steps: int = 1000) -> SearchResult:
    options = SearchOptions(steps=steps, few=few)
    return lbfgs(options, target_of(dtype), torch.tensor(START, dtype=dtype), 0)


def test_a_search_is_given_up_where_its_rate_or_its_gain_is_too_low() -> None:
    few = Few(bar=0.0, leader=5.0, steps=12)
    assert RECENT == 3
    assert not few.is_given_up([-30.0, -29.9, -29.8])  # too early to say
    # eight iterations are left, and the largest of the last three gains counts
    for gains in ([1.0, 0.5, 0.2], [0.5, 1.0, 0.2], [0.2, 0.5, 1.0]):
        for end, given_up in ((-8.01, True), (-7.99, False)):
            heights = (end - sum(gains) + np.cumsum([0.0, *gains])).tolist()
            assert few.is_given_up(heights) is given_up
            assert few.is_given_up([-50.0, *heights]) is (end + 7 < 0.0)
    low = 0.9 * LITTLE_GAIN
    assert few.is_given_up([1.0, 1.0, 1.0 + low, 1.0 + 2 * low])
    assert not few.is_given_up([0.0, 2 * low, 2 * low, 2 * low])
    assert not few.is_given_up([6.0, 6.0, 6.0, 6.0])  # it leads


@DTYPES
def test_a_search_that_cannot_reach_the_bar_is_given_up(dtype: torch.dtype) -> None:
    given_up = searched(dtype, Few(bar=1e3))
    assert given_up.stats["steps"] == RECENT + 1
    assert given_up.notes == [f"{GIVEN_UP} after {RECENT + 1} iterations"]
    patient = searched(dtype, Few())
    assert patient.stats["steps"] == Few().steps
    assert any(SHORT_OF_STEPS in note for note in patient.notes)
    assert patient.stats["log_density"] > given_up.stats["log_density"]
    fewer = searched(dtype, Few(), steps=2)
    assert fewer.stats["steps"] == 2
    assert any(SHORT_OF_STEPS in note for note in fewer.notes)


@DTYPES
@pytest.mark.parametrize("leader", [-math.inf, -1.0])
def test_a_search_that_leads_goes_on_to_the_mode(dtype: torch.dtype, leader: float) -> None:
    led, whole = searched(dtype, Few(bar=1e3 * leader, leader=leader)), searched(dtype, None)
    assert whole.stats["steps"] > 2 * Few().steps
    assert torch.equal(led.z, whole.z)
    assert led.stats["steps"] == whole.stats["steps"]
    assert not led.notes
    assert float((led.z - MODE).abs().max()) < (1e-4 if dtype == F64 else 2e-2)


def test_newtons_method_follows_the_same_rule() -> None:
    z0 = torch.tensor(START, dtype=F64)
    target = target_of(F64)
    few = trust_region_newton(SearchOptions(few=Few()), target, z0, 0)
    assert few.stats["steps"] == Few().steps
    led = trust_region_newton(SearchOptions(few=Few(leader=-math.inf)), target, z0, 0)
    assert led.stats["steps"] > Few().steps
    assert float((led.z - MODE).abs().max()) < 1e-6


def test_a_search_may_have_more_steps_than_few_where_it_leads() -> None:
    options = SearchOptions(steps=100, few=Few(leader=-3.0))
    assert options.most_steps(-3.0) == Few().steps
    assert options.most_steps(-2.9) == 100
    assert SearchOptions(steps=5, few=Few()).most_steps(0.0) == 5
    assert SearchOptions(steps=100).most_steps(-math.inf) == 100


def wave() -> ppgp.Dataset:
    rng = np.random.default_rng(3)
    t = np.arange(50.0)
    return ppgp.Dataset(t[:, None], np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=50))


@pytest.fixture(scope="module")
def waving() -> Target:
    data = wave().standardised()[0]
    return Target(models.GP(kernels.Periodic()).prepare(data), data)


class Told:
    """A search that ends where it begins, at heights that are told, and keeps what it was asked.

    Args:
        heights: The log density of each end.
        rising: The numbers of the searches that are not at their ends.
        interrupted_at: The number of the search that Ctrl-C ends; None: there is none.
    """

    def __init__(
        self, heights: list[float], rising: Iterable[int] = (), interrupted_at: int | None = None
    ) -> None:
        self.heights, self.rising, self.interrupted_at = heights, set(rising), interrupted_at
        self.asked: list[Few | None] = []
        self.begun: list[Tensor] = []

    def __call__(
        self, target: Target, z: Tensor, seed: int, few: Few | None = None
    ) -> SearchResult:
        number = len(self.asked)
        self.asked.append(few)
        self.begun.append(z)
        if number == self.interrupted_at:
            raise KeyboardInterrupt
        notes = (
            ["the search ended after 12 iterations: raise steps"] if number in self.rising else []
        )
        stats = {"log_density": self.heights[number], "losses": torch.empty(0)}
        return SearchResult(z, stats, notes)


def test_the_first_search_goes_on_at_once_and_the_others_are_measured_by_it(
    waving: Target,
) -> None:
    plan = plan_of_starts(waving, None, None)
    assert plan.first_whole
    assert plan.starts == 4
    told = Told([-50.0, -60.0, -48.0, -70.0])
    result = best_of(waving, told, waving.origin(), plan, 0)
    highest = [-math.inf, -50.0, -50.0, -48.0]
    assert told.asked[:4] == [Few(bar=h - UNDECIDED, leader=h) for h in highest]
    assert result.stats["end_log_densities"].tolist() == told.heights[:4]
    assert torch.equal(result.z, told.begun[2])


@pytest.mark.parametrize(
    ("heights", "rising", "goes_on"),
    [
        ([-50.0, -49.9, -60.0, -60.0], [1], 1),  # the best, not at its end
        ([-50.0, -49.9, -60.0, -60.0], [], None),  # the best, at its end
        ([-50.0, -52.0, -60.0, -60.0], [1], 1),  # a rival that was still rising
        ([-50.0, -52.0, -60.0, -60.0], [], None),  # one that had ended
        ([-50.0, -57.0, -60.0, -60.0], [1, 2, 3], None),  # too low
    ],
)
def test_the_best_and_a_rival_go_on_if_they_rise(
    waving: Target, heights: list[float], rising: list[int], goes_on: int | None
) -> None:
    told = Told([*heights, -49.0], rising)
    best_of(waving, told, waving.origin(), plan_of_starts(waving, None, None), 0)
    assert len(told.asked) == (4 if goes_on is None else 5)
    if goes_on is not None:
        assert told.asked[4] is None
        assert torch.equal(told.begun[4], told.begun[goes_on])


@pytest.mark.parametrize("at", [1, 3])
def test_ctrl_c_between_searches_leaves_the_best_so_far(waving: Target, at: int) -> None:
    told = Told([-50.0, -60.0, -48.0, -70.0], interrupted_at=at)
    result = best_of(waving, told, waving.origin(), plan_of_starts(waving, None, None), 0)
    assert result.interrupted
    assert len(told.asked) == at + 1
    assert result.stats["log_density"] == max(told.heights[:at])


def test_ctrl_c_in_the_first_search_leaves_nothing(waving: Target) -> None:
    told = Told([], interrupted_at=0)
    with pytest.raises(KeyboardInterrupt):
        best_of(waving, told, waving.origin(), plan_of_starts(waving, None, None), 0)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_ctrl_c_in_a_fit_leaves_the_highest_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes at each twentieth evaluation in turn, in the first search and in later ones."""
    whole = ppgp.fit(models.GP(kernels.Periodic()), wave(), inference.MAP(), progress=False)
    callback = Target.callback
    seen: list[float] = []
    last = [0]

    def counted(self: Target, *args: Any, **kwargs: Any) -> Any:
        evaluate = callback(self, *args, **kwargs)

        def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
            if len(seen) == last[0]:
                raise KeyboardInterrupt
            found = evaluate(z)
            seen.append(found[0])
            return found

        return value_and_gradient

    monkeypatch.setattr(Target, "callback", counted)
    evaluations = sum(len(losses) for losses in whole.stats["losses_of_starts"])
    for last[0] in range(8, evaluations, 20):
        seen.clear()
        cut = ppgp.fit(models.GP(kernels.Periodic()), wave(), inference.MAP(), progress=False)
        assert cut.stats["interrupted"]
        assert cut.stats["log_density"] == max(seen)


@DTYPES
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_fit_of_each_dtype_ends_in_the_mode_of_whole_searches(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, 40)
    y = np.where(rng.random(40) < 0.6, 2.0, -2.0) * x + 0.2 * rng.normal(size=40)
    data = ppgp.Dataset(torch.as_tensor(x[:, None], dtype=dtype), torch.as_tensor(y, dtype=dtype))
    model = models.GLM(likelihoods.StudentT())
    one, many = (
        ppgp.fit(model, data, how, progress=False)
        for how in (inference.MAP(), inference.MAP(starts=4))
    )
    least = many.stats["log_density"] - (1e-3 if dtype == F64 else 0.05)
    assert one.stats["log_density"] >= least
