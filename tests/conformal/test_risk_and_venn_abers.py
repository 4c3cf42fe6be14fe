"""Conformal risk control; Venn-Abers against isotonic regression refitted for every row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression

from ppgp.conformal import VennAbers, risk_control
from ppgp.errors import DataError, SettingError


def test_the_expected_loss_is_controlled_and_close_to_its_bound() -> None:
    """The loss is 1[z > lambda] with z uniform; 2,000 repetitions with n = 40."""
    rng = np.random.default_rng(0)
    grid = np.linspace(0, 1, 201)
    losses = []
    for _ in range(2000):
        z = rng.random(41)
        found = risk_control((z[:40, None] > grid).astype(float), grid, 0.2)
        losses.append(float(z[40] > found.parameter))
    error = 3 * math.sqrt(0.16 / 2000)
    assert np.mean(losses) <= 0.2 + error
    assert np.mean(losses) >= 0.2 - 2 / 41 - 1 / 200 - error


def test_a_risk_that_cannot_be_controlled_is_reported() -> None:
    found = risk_control(torch.ones(50, 3), [0.0, 0.5, 1.0], 0.2)
    assert found.parameter == 1.0
    assert found.guarantee.startswith("none")
    with pytest.raises(DataError, match=r"rising in row 1"):
        risk_control([[1.0, 0.5], [0.2, 0.4]], [0.0, 1.0], 0.3)
    with pytest.raises(DataError, match="at most bound"):
        risk_control([[3.0, 0.5]], [0.0, 1.0], 0.3)
    with pytest.raises(DataError, match="NaN or infinity in row 1"):
        risk_control([[1.0, 0.5], [math.nan, 0.0]], [0.0, 1.0], 0.3)
    with pytest.raises(SettingError, match="risk between"):
        risk_control([[1.0, 0.0]], [0.0, 1.0], 1.5)


@pytest.mark.parametrize("seed", range(20))
def test_both_probabilities_equal_isotonic_regression_refitted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    scores = rng.integers(0, 15, size=n) / 3.0
    labels = (rng.random(n) < scores / 6).astype(float)
    new = np.concatenate([rng.integers(-1, 17, size=10) / 3.0, rng.normal(2, 3, size=10)])
    found = VennAbers(scores, labels)(new)
    for j, x in enumerate(new):
        for label, p in enumerate(found):
            wanted = (
                IsotonicRegression()
                .fit(np.append(scores, x), np.append(labels, label))
                .predict([x])[0]
            )
            assert float(p[j]) == pytest.approx(wanted, abs=1e-12)


def test_the_merged_probability_is_calibrated_where_the_score_is_not() -> None:
    rng = np.random.default_rng(1)
    p = rng.random(20000)
    labels = (rng.random(20000) < p).astype(float)
    merged = VennAbers(p[:10000] ** 3, labels[:10000]).probability(p[10000:] ** 3).numpy()
    for low in np.arange(0.05, 0.95, 0.1):
        here = (merged > low) & (merged < low + 0.1)
        error = 4 * math.sqrt(0.25 / here.sum())
        assert labels[10000:][here].mean() == pytest.approx(merged[here].mean(), abs=error + 0.02)
    with pytest.raises(DataError, match="labels 0 and 1"):
        VennAbers([0.1, 0.2], [1.0, 2.0])
