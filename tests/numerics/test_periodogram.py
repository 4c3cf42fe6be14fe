"""The periodogram beside least squares at each frequency, and the periods that it finds."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_many_rows_are_looked_at_in_part() -> None:
    x = np.arange(20_000.0)
    found = strongest_periods(x, np.sin(2 * np.pi * x / 365.25), 1)
    assert found[0] == pytest.approx(365.25, rel=0.01)
