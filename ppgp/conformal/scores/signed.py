"""The signed residual, with one threshold per side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Ends, Score


@dataclass(frozen=True)
class Signed(Score):
    """The score (mean - y, y - mean): intervals that need not be symmetric.

    Each side has half the miscoverage. Linusson et al. (2014). A side misses at most
    (1 - level) / 2 of the time, so that both hold together at the level; the coverage may exceed it
    by up to 2 / (n + 1) where scores are distinct. A finite set needs twice the rows that a
    symmetric score needs, and one more: 19 in place of 9 at the level 0.9.

    Args:
        normalized: Whether the residuals are in units of the predictive standard deviation
            (``Prediction.spread``). The scores [n, 2] are in the units of y otherwise.

    Raises:
        NotApplicable: By ``calibrate`` and by its calibrator, if y is a class; by ``ACI``,
            ``AgACI`` and ``PID``, which need one side.

    Examples:
        Residuals from -3 to 15: the upper side reaches further than the lower one.

        >>> import ppgp
        >>> from ppgp import conformal
        >>> calibration = ppgp.Prediction.from_points([0.0] * 19)
        >>> y = [float(v) for v in range(-3, 16)]
        >>> new = ppgp.Prediction.from_points([100.0])
        >>> ppgp.calibrate(conformal.Signed(), calibration, y)(new, level=0.8).to_frame()
           lower  upper
        0   98.0  114.0
        >>> ppgp.calibrate(conformal.Absolute(), calibration, y)(new, level=0.8).to_frame()
           lower  upper
        0   88.0  112.0
    """

    normalized: bool = False
    sides: ClassVar[int] = 2
    of_level = False

    def _ends(self, prediction: Prediction) -> Ends:
        centre = prediction.centre
        unit = prediction.spread if self.normalized else None
        return Ends(centre, centre, unit, unit)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        sides = torch.stack(self._ends(prediction).sides(y), -1)
        # a threshold of -inf stands for the set that holds nothing
        return sides.clamp_min(torch.finfo(sides.dtype).min)

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        if q.ndim and q.shape[-1] == 2:
            return self._ends(prediction).region(q[..., 0], q[..., 1], level)
        return self._ends(prediction).region(q, q, level)
