"""The periodogram beside least squares at each frequency, and the periods that it finds."""

from __future__ import annotations

import numpy as np
import pytest

from ppgp.numerics import periodogram
from ppgp.numerics.periodogram import _explained, strongest_periods


@pytest.mark.parametrize("regular", [True, False])
def test_the_power_is_what_least_squares_explain_beside_a_trend(regular: bool) -> None:
    rng = np.random.default_rng(3)
    x = np.linspace(0, 10, 40) if regular else np.sort(rng.uniform(0, 10, 40))
    other = rng.normal(size=(40, 1))
    y = 2.0 * x + other[:, 0] + np.sin(2 * np.pi * x / 1.7) + 0.5 * rng.normal(size=40)
    frequencies = np.linspace(0.1, 1.9, 31)
    trend = np.column_stack([np.ones(40), x, other])

    def squares(columns: np.ndarray) -> float:
        rest = y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
        return float(rest @ rest)

    alone = squares(trend)
    expected = [
        1 - squares(np.column_stack([trend, np.cos(w * x), np.sin(w * x)])) / alone
        for w in 2 * np.pi * frequencies
    ]
    np.testing.assert_allclose(_explained(x, y, frequencies, other), expected, atol=1e-9)


@pytest.mark.parametrize("period", [2.3, 7.0, 31.0])
def test_the_highest_peak_is_the_period_beside_a_slope(period: float) -> None:
    x = np.sort(np.random.default_rng(1).uniform(0, 100, 300))
    y = 5.0 - 0.4 * x + np.cos(2 * np.pi * x / period + 0.4)
    found = strongest_periods(x, y, 3)
    assert len(found) == 3
    # the spacing of the frequencies is a sixth of the width of a peak
    assert abs(1 / found[0] - 1 / period) < 1 / 6 / 100


def test_the_order_and_the_unit_of_the_places_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 50, 80)
    y = np.sin(2 * np.pi * x / 6.0) + 0.1 * rng.normal(size=80)
    order = rng.permutation(80)
    first = strongest_periods(x, y, 4)
    np.testing.assert_allclose(strongest_periods(x[order], y[order], 4), first)
    np.testing.assert_allclose(strongest_periods(1e6 + 86400 * x, 3 * y, 4), 86400 * first)


def test_a_line_a_constant_and_few_rows_have_no_period() -> None:
    x = np.arange(20.0)
    assert len(strongest_periods(x, 3 * x + 1, 2)) == 0
    assert len(strongest_periods(x, np.full(20, 2.0), 2)) == 0
    assert len(strongest_periods(x[:4], np.sin(x[:4]), 2)) == 0
    assert len(strongest_periods(np.zeros(20), np.sin(x), 2)) == 0


@pytest.mark.parametrize("regular", [True, False])
def test_sums_by_fft_are_those_of_the_rows(regular: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x = np.arange(300.0) if regular else np.sort(rng.uniform(0, 300, 300))
    y = np.sin(x / 3.0) + 0.02 * x + rng.normal(size=300)
    frequencies = np.arange(3, 900) / (6 * 300.0)
    others = rng.normal(size=(300, 2))
    by_fft = _explained(x, y, frequencies, others)
    monkeypatch.setattr(periodogram, "FEW_NUMBERS", x.size * frequencies.size)
    np.testing.assert_allclose(by_fft, _explained(x, y, frequencies, others), atol=1e-9)


@pytest.mark.parametrize("regular", [True, False])
def test_a_weak_wave_is_found_in_many_rows(regular: bool) -> None:
    n = 100_000
    rng = np.random.default_rng(6)
    x = np.arange(1.0 * n) if regular else np.sort(rng.uniform(0, n, n))
    y = 0.05 * np.sin(2 * np.pi * x / 365.25) + 1e-5 * x + rng.normal(size=n)
    found = strongest_periods(x, y, 1)
    # the spacing of the frequencies is a sixth of the width of a peak
    assert abs(1 / found[0] - 1 / 365.25) < 1 / 6 / n
