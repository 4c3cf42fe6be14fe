"""The absolute residual."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score, interval


@dataclass(frozen=True)
class Absolute(Score):
    """|y - mean|: intervals of one width for all rows. Papadopoulos et al. (2002); Lei et al. (2018)."""

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return (y - prediction.mean).abs()

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        mean = prediction.mean
        return interval(mean - q, mean + q, level)
