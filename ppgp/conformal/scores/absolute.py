"""The absolute residual."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Ends, Score


@dataclass(frozen=True)
class Absolute(Score):
    """The score |y - mean|: intervals of one width for all rows.

    Papadopoulos et al. (2002); Lei et al. (2018). Where the predictive distribution has no finite
    mean, its median is used.
    """

    of_level = False

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        centre = prediction.centre
        return (y.to(centre) - centre).abs()

    def ends(self, prediction: Prediction, level: float) -> Ends:
        return Ends(prediction.centre, prediction.centre)

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        return self.ends(prediction, level).region(q, q, level)
