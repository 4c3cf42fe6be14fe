"""The tools that judge forecasts beside other libraries."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tool_modules import tool

packages: Any = tool("series_of_packages")
peers: Any = tool("forecasts_of_peers")
ours: Any = tool("forecasts_of_ppgp")


def test_half_of_the_series_judge_by_their_place_in_the_alphabet() -> None:
    series = packages.read()
    assert list(series) == sorted(series)
    simulated = [name for name in series if name.startswith("simulated")]
    assert len(simulated) == 10
    assert len(series) - len(simulated) >= 25
    halves = Counter(packages.half_of(list(series)).values())
    assert abs(halves["tuning"] - halves["judged"]) <= 1
    for one in series.values():
        first, second, third = one.origins
        assert first > 2 * one.m or one.freq == "W"
        assert (second - first, third - second, len(one.values) - third) == (one.h,) * 3
        assert np.isfinite(one.values).all()
        assert len(one.dates) == len(one.values)


def test_naive_forecasts_have_the_scores_that_are_kept() -> None:
    kept = json.loads(peers.FILE.read_text())
    for name, series in packages.read().items():
        for n, window in zip(series.origins, kept["seasonal naive"][name], strict=True):
            y, ahead = np.array(series.values[:n]), np.array(series.values[n : n + series.h])
            places = [n - series.m + k % series.m for k in range(series.h)]
            unit = np.mean([abs(y[i] - y[i - series.m]) for i in range(series.m, n)])
            expected = np.mean(np.abs(ahead - y[places])) / unit
            assert window["mase"] == pytest.approx(expected, abs=1e-5)
            assert window["interval_score"] > 0
            assert 0 <= window["coverage"] <= 1


def test_scores_of_a_window_are_those_of_their_formula() -> None:
    series = packages.Series("x", "none", "2000-01-01", "YS", [1.0, 3.0, 2.0, 6.0] + [5.0] * 6)
    forecast = np.full(6, 4.0), np.full(6, 3.0), np.full(6, 4.5)
    found = peers.scores(series, 4, forecast, 0.5)
    unit = (2 + 1 + 4) / 3
    assert found["mase"] == pytest.approx(1 / unit, abs=1e-5)
    assert found["interval_score"] == pytest.approx((1.5 + 20 * 0.5) / unit, abs=1e-5)
    assert found["coverage"] == 0.0


def test_ratios_are_geometric_means_with_an_interval_around_them() -> None:
    rows = {name: [{"mase": value}] for name, value in (("a", 1.0), ("b", 4.0), ("c", 2.0))}
    twice = {name: [{"mase": 2 * w["mase"]} for w in windows] for name, windows in rows.items()}
    found = {"one": rows, "two": twice, "flat": {name: [{"mase": 1.0}] for name in rows}}
    assert ours.ratio(found, list(rows), "one", "two", "mase") == pytest.approx([0.5] * 3)
    middle, low, high = ours.ratio(found, list(rows), "one", "flat", "mase")
    assert middle == pytest.approx(2.0)
    assert 1.0 <= low < middle < high <= 4.0
