"""The residual in units of the predictive standard deviation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Ends, Score


@dataclass(frozen=True)
class Normalized(Score):
    """The score |y - mean| / sd: intervals that are wide where the model is uncertain.

    The sd is that of the predictive distribution of y (noise included). Papadopoulos & Haralambous
    (2011). The calibration rows must not have been used to fit the model, its sd included. Where
    the predictive distribution has no finite mean or no sd that is finite and positive,
    ``Prediction.centre`` and ``Prediction.spread`` are the median and the interquartile range.
    """

    of_level = False

    def ends(self, prediction: Prediction, level: float) -> Ends:
        centre, unit = prediction.centre, prediction.spread
        return Ends(centre, centre, unit, unit)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return self.ends(prediction, level).above_score(y).abs()

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        return self.ends(prediction, level).region(q, q, level)
