"""Metrics refuse a y that does not have one entry per row, which would be spread over the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxtyping import config

import ppgp
from ppgp import metrics
from ppgp.errors import DataError, NotApplicable, SettingError

NUMBERS = ppgp.Prediction.from_points([0.0, 1.0, 2.0], sd=1.0)
CLASSES = ppgp.Prediction.from_probabilities([[0.6, 0.4], [0.2, 0.8], [0.9, 0.1]])
OF_NUMBERS = [metrics.rmse, metrics.nll, metrics.mean_crps]
OF_CLASSES = [metrics.accuracy, metrics.nll, metrics.brier, metrics.calibration_error]


@pytest.fixture(autouse=True)
def users_have_no_checks_of_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)


def named(metric: Callable[..., float]) -> str:
    return metric.__name__


@pytest.mark.parametrize("y", [[1], [[0], [1], [0]], 1, [0, 1], [[0, 1, 0]]], ids=str)
@pytest.mark.parametrize("metric", [*OF_NUMBERS, *OF_CLASSES], ids=named)
def test_another_shape_than_one_y_per_row_is_refused(metric: Callable[..., float], y: Any) -> None:
    prediction = NUMBERS if metric in OF_NUMBERS else CLASSES
    with pytest.raises(DataError, match=r"one y per row \(3\), got shape"):
        metric(prediction, y)


@pytest.mark.parametrize("label", [2, -1, 0.5, np.nan])
@pytest.mark.parametrize("metric", OF_CLASSES, ids=named)
def test_a_label_that_is_not_known_is_refused(metric: Callable[..., float], label: float) -> None:
    with pytest.raises(DataError, match="labels"):
        metric(CLASSES, [0, label, 1])


@pytest.mark.parametrize("metric", [*OF_NUMBERS, *OF_CLASSES], ids=named)
def test_an_array_in_place_of_a_prediction_is_refused(metric: Callable[..., float]) -> None:
    with pytest.raises(NotApplicable, match="a Prediction"):
        metric(np.zeros(3), [0.0, 1.0, 0.0])


@pytest.mark.parametrize("bins", [0, -1, 2.5, True])
def test_the_bins_are_a_whole_number(bins: Any) -> None:
    with pytest.raises(SettingError, match="whole number of bins"):
        metrics.calibration_error(CLASSES, [0, 1, 0], bins=bins)
