"""The residual in units of the predictive standard deviation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score, interval


@dataclass(frozen=True)
class Normalized(Score):
    """|y - mean| / sd, sd of the predictive law of y (noise included): wide where the model is unsure. Papadopoulos & Haralambous (2011).

    The model, its sd included, must not have seen the calibration rows.
    """

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return (y - prediction.mean).abs() / prediction.std

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        mean, half = prediction.mean, q * prediction.std
        return interval(mean - half, mean + half, level)
