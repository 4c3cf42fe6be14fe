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
    mean, its median is used. The scores [n] and the threshold are in the units of y.

    Raises:
        NotApplicable: By ``calibrate`` and by its calibrator, if y is a class.

    Examples:
        >>> import ppgp
        >>> from ppgp import conformal
        >>> calibration = ppgp.Prediction.from_points([0.0] * 9)
        >>> y = [1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0, 9.0]
        >>> calibrator = ppgp.calibrate(conformal.Absolute(), calibration, y)
        >>> new = ppgp.Prediction.from_points([20.0, 30.0])
        >>> calibrator(new, level=0.8).to_frame()  # the 8th smallest of 9 residuals is 8
           lower  upper
        0   12.0   28.0
        1   22.0   38.0
    """

    of_level = False

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        centre = prediction.centre
        return (y.to(centre) - centre).abs()

    def ends(self, prediction: Prediction, level: float) -> Ends:
        return Ends(prediction.centre, prediction.centre)

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        return self.ends(prediction, level).region(q, q, level)
