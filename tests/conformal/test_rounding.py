"""No guarantee states more than its theorem, for want of digits."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributions import Normal

from ppgp import Prediction
from ppgp import conformal as C
from ppgp.conformal.cross import CrossCalibrator
from ppgp.conformal.rounding import rounded_down, rounded_up


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.0241, "0.025", "0.024"),
        (0.0249, "0.025", "0.024"),
        (0.3, "0.3", "0.3"),
        (0.1 + 0.2, "0.3", "0.3"),
        (0.996, "1", "0.99"),
        (123.4, "1.3e+02", "1.2e+02"),
        (0.0, "0", "0"),
        (float("inf"), "inf", "inf"),
    ],
)
def test_numbers_are_rounded_to_one_side(value: float, up: str, down: str) -> None:
    assert (rounded_up(value, 2), rounded_down(value, 2)) == (up, down)


def stated(guarantee: str) -> float:
    found = re.search(r"coverage (?:[\d.]+ \+-|>=) ([\d.e-]+)", guarantee)
    assert found is not None
    return float(found[1])


def test_online_bounds_are_not_below_the_theorem() -> None:
    y = torch.ones(400, dtype=torch.float64)
    zeros = torch.zeros(1, 400, dtype=torch.float64)
    aci = C.ACI(C.Absolute(), 0.9, rate=0.1)
    for rows in (26, 133, 241, 390):
        prediction = Prediction(Normal(zeros[:, :rows], torch.ones_like(zeros[:, :rows])))
        online = aci(prediction, y[:rows])
        assert aci.bound(rows) * (1 - 1e-12) <= stated(online.region.guarantee)
        assert abs(online.coverage - 0.9) <= stated(online.region.guarantee) + 1e-12


def test_promised_coverage_is_not_above_the_theorem() -> None:
    for n, folds in ((100, 10), (60, 6), (40, 20), (41, 7)):
        parts = torch.arange(n).tensor_split(folds)
        cross: Any = SimpleNamespace(
            n=n, posteriors=(None,) * folds, held_out=parts, found=None, given=()
        )
        cross.promised = partial(CrossCalibrator.promised, cross)
        for level in (0.85, 0.9, 0.95):
            sentence = CrossCalibrator._guarantee(cross, level)
            assert stated(sentence) <= cross.promised(level) * (1 + 1e-12)


def test_the_risk_is_stated_in_full() -> None:
    losses, risk = torch.zeros(99, 1, dtype=torch.float64), 0.1234564
    assert f"<= {risk} " in C.risk_control(losses, [1.0], risk).guarantee
