"""The residual in units of the predictive standard deviation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Ends, Score, ratio


@dataclass(frozen=True)
class Normalized(Score):
    """The score |y - mean| / sd: intervals that are wide where the model is uncertain.

    The sd is that of the predictive distribution of y (noise included). Papadopoulos & Haralambous
    (2011). The calibration rows must not have been used to fit the model, its sd included. Where
    the predictive distribution has no finite mean or no sd that is finite and positive,
    ``Prediction.centre`` and ``Prediction.spread`` are the median and the interquartile range
    (over 1.349, so that of a normal distribution equals its sd). The scores [n] have no unit: they
    are numbers of standard deviations.

    Raises:
        NotApplicable: By ``calibrate`` and by its calibrator, if y is a class; by the calibrator,
            if predictions are points without a spread.

    Examples:
        >>> import ppgp
        >>> from ppgp import conformal
        >>> sd = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 4.0]
        >>> calibration = ppgp.Prediction.from_points([0.0] * 9, sd=sd)
        >>> y = [0.5, -2.0, 1.0, -1.5, 4.0, -7.5, 3.0, -7.0, 9.0]
        >>> calibrator = ppgp.calibrate(conformal.Normalized(), calibration, y)
        >>> new = ppgp.Prediction.from_points([20.0, 20.0], sd=[1.0, 5.0])
        >>> calibrator(new, level=0.8).to_frame()  # three sds each way
           lower  upper
        0   17.0   23.0
        1    5.0   35.0
    """

    of_level = False

    def ends(self, prediction: Prediction, level: float) -> Ends:
        centre, unit = prediction.centre, prediction.spread
        return Ends(centre, centre, unit, unit)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        centre = prediction.centre
        return ratio(y.to(centre) - centre, prediction.spread).abs()

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        return self.ends(prediction, level).region(q, q, level)
