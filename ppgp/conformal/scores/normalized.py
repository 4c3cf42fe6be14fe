"""The residual in units of the predictive standard deviation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Ends, Score


@dataclass(frozen=True)
class Normalized(Score):
    """|y - mean| / sd, sd of the predictive law of y (noise included): wide where the model is unsure. Papadopoulos & Haralambous (2011).

    The model, its sd included, must not have seen the calibration rows. Where the law has no finite mean or no sd that is
    finite and positive, ``Prediction.centre`` and ``Prediction.spread`` take the median and the interquartile range.
    """

    def _ends(self, prediction: Prediction) -> Ends:
        centre, unit = prediction.centre, prediction.spread
        return Ends(centre, centre, unit, unit)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return self._ends(prediction).sides(y)[1].abs()

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        return self._ends(prediction).region(q, q, level)
