"""Online conformal prediction: the long-run bound for any sequence, and recovery after a shift."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from jaxtyping import config

from ppgp.conformal import ACI, LAC, PID, Absolute, AgACI, Quantile, Signed, calibrate
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.posterior.prediction import Prediction


def standard(n: int) -> Prediction:
    zeros = torch.zeros(1, n, dtype=torch.float64)
    return Prediction(dist.Normal(zeros, torch.ones_like(zeros)))


def adversary(aci: ACI, rows: int) -> torch.Tensor:
    """Return the worst sequence: each finite set misses y, and each infinite set covers it."""
    y: list[float] = []
    for _ in range(rows):
        trial = aci(standard(len(y) + 1), [*y, 0.0])
        q = float(trial.thresholds[-1])
        y.append(q + 1.0 if math.isfinite(q) else 0.0)
    return torch.tensor(y, dtype=torch.float64)


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_the_bound_holds_on_an_adversarial_sequence(rate: float) -> None:
    aci = ACI(Absolute(), 0.8, rate)
    y = adversary(aci, 150)
    for rows in (20, 80, 150):
        online = aci(standard(rows), y[:rows])
        assert abs(float(online.errors.double().mean()) - 0.2) <= aci.bound(rows) + 1e-12
    assert torch.equal(online.region.covers(y), ~online.errors)


@pytest.mark.parametrize("name", ["sorted", "heavy tails", "shift", "constant"])
def test_the_bound_holds_on_sequences_of_every_kind(name: str) -> None:
    rng = np.random.default_rng(0)
    y = {
        "sorted": np.sort(rng.normal(size=800)),
        "heavy tails": rng.standard_cauchy(800),
        "shift": np.concatenate([rng.normal(size=400), 10 * rng.normal(size=400)]),
        "constant": np.zeros(800),
    }[name]
    for rate in (0.005, 0.05):
        aci = ACI(Absolute(), 0.9, rate)
        online = aci(standard(800), y)
        assert abs(1 - online.coverage - 0.1) <= aci.bound(800)
        assert f"{aci.bound(800):.2g}" in online.region.guarantee


def test_alpha_outside_0_1_gives_everything_and_nothing() -> None:
    online = ACI(Absolute(), 0.5, rate=0.9)(standard(40), torch.zeros(40))
    assert bool((online.alphas > 1).any())
    assert bool(online.region.empty[online.alphas >= 1].all())
    assert bool(online.region.infinite[online.alphas <= 0].all())


def test_every_method_recovers_after_a_change_of_scale_where_a_fixed_threshold_does_not() -> None:
    rng = np.random.default_rng(1)
    before = rng.normal(size=200)
    y = np.concatenate([rng.normal(size=500), 4 * rng.normal(size=1500)])
    calibrator = calibrate(Absolute(), standard(200), before)
    fixed = calibrator(standard(2000), level=0.9).covers(y)[500:]
    assert float(fixed.double().mean()) < 0.6
    for method in (
        ACI(Absolute(), 0.9, 0.02, window=300),
        AgACI(Absolute(), 0.9, window=300),
        PID(Absolute(), 0.9),
    ):
        online = method(standard(2000), y, calibration=calibrator)
        late = float((~online.errors[1000:]).double().mean())
        assert late == pytest.approx(0.9, abs=0.03), method


def test_thresholds_depend_on_earlier_rows_alone() -> None:
    rng = np.random.default_rng(2)
    y = rng.normal(size=120)
    changed = y.copy()
    changed[80:] = 50.0
    for method in (ACI(Absolute()), AgACI(Absolute()), PID(Absolute()), ACI(Quantile())):
        one, other = (method(standard(120), v).thresholds for v in (y, changed))
        assert torch.equal(one[:81], other[:81])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(NotApplicable, match="one side"):
        ACI(Signed())(standard(5), torch.zeros(5))
    with pytest.raises(DataError, match="in their order"):
        ACI(Absolute())(standard(5), torch.zeros(4))
    with pytest.raises(SettingError, match="rate above 0"):
        ACI(Absolute(), rate=0.0)
    with pytest.raises(SettingError, match=r"level in \(0, 1\)"):
        ACI(Absolute(), level=1.0)
    with pytest.raises(SettingError, match="one or more rates"):
        AgACI(Absolute(), rates=())
    with pytest.raises(NotApplicable):
        ACI(LAC())(standard(5), torch.zeros(5))


def test_the_range_of_pid_needs_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no checks of types
    no_window: Any = None
    with pytest.raises(SettingError, match="at least one score in PID"):
        PID(Absolute(), window=no_window)


@pytest.mark.parametrize("saturation", [0.0, -1.0, math.inf, math.nan])
def test_a_saturation_that_would_reverse_or_stop_the_integrator_is_refused(
    saturation: float,
) -> None:
    with pytest.raises(SettingError, match="saturation above 0"):
        PID(Absolute(), saturation=saturation)


def test_misses_are_those_of_sets_in_single_precision() -> None:
    """Steps far below the rounding of a threshold: every row was covered, at +- .005 of .9."""
    y, n = torch.ones(200), 200
    ones = torch.ones(1, n)
    prediction = Prediction(dist.Normal(torch.zeros(1, n), ones))
    old = Prediction(dist.Normal(torch.zeros(1, 50, dtype=torch.float64), 1.0))
    calibrator = calibrate(Absolute(), old, torch.full((50,), 1.0 + 1e-12, dtype=torch.float64))
    for method in (PID(Absolute(), 0.9, rate=1e-6), PID(Absolute(), 0.9, rate=1e-9)):
        online = method(prediction, y, calibrator)
        found = re.search(r"coverage ([\d.]+) \+- ([\d.e-]+)", online.region.guarantee)
        if found is None:
            assert online.region.guarantee.startswith("heuristic")
        else:
            assert abs(online.coverage - float(found[1])) <= float(found[2]) + 1e-12
    aci = ACI(Absolute(), 0.9)(prediction, y, calibrator)
    assert bool((aci.region.covers(y) == ~aci.errors).all())
    assert torch.equal(aci.thresholds[:50], torch.ones(50))
