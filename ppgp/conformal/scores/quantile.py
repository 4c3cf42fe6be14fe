"""Conformalised quantile regression on the predictive quantiles."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...display.overrides import computed
from ...errors import UnknownName
from ...posterior.prediction import Prediction
from ...posterior.region import Region
from ...runtime.levels import exact_level
from .base import Ends, Score

UNITS = ("y", "median", "width")


@dataclass(frozen=True)
class Quantile(Score):
    """The score max(l - y, y - u), with [l, u] the central predictive interval at the level.

    Romano, Patterson & Candes (2019), equation 6. A negative threshold narrows an interval that was
    too wide; where the ends would cross, the set is empty. The scores are [n], one per row.

    Args:
        widen_only: Whether the score is clipped at 0, so that the set never shrinks. It covers at
            least as often as the model's own interval, and more than the level where that interval
            was already wide enough.
        unit: Of the score: "y"; "median" (each side in units of the distance from its end to the
            median: CQR-m) or "width" (in units of the interval's width: CQR-r). With the last two,
            wide rows are widened by more. Sesia & Candes (2020).

    Raises:
        UnknownName: If ``unit`` is none of these.
        NotApplicable: By ``calibrate`` and by its calibrator, if y is a class; by the calibrator,
            if the predictions have no such quantiles.

    Examples:
        Every y lies in the interval from 0 to 10 of a quantile regression, at least 1 from its
        ends. The new interval from 20 to 40 is made narrower by 1 each side:

        >>> import ppgp
        >>> from ppgp import conformal
        >>> calibration = ppgp.Prediction.from_quantiles([[0.0, 10.0]] * 9, [0.05, 0.95])
        >>> y = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 8.5, 9.0]
        >>> new = ppgp.Prediction.from_quantiles([[20.0, 40.0]], [0.05, 0.95])
        >>> ppgp.calibrate(conformal.Quantile(), calibration, y)(new, level=0.9).to_frame()
           lower  upper
        0   21.0   39.0
        >>> in_widths = conformal.Quantile(unit="width")  # by a tenth of the width
        >>> ppgp.calibrate(in_widths, calibration, y)(new, level=0.9).to_frame()
           lower  upper
        0   22.0   38.0
        >>> wider = conformal.Quantile(widen_only=True)
        >>> ppgp.calibrate(wider, calibration, y)(new, level=0.9).to_frame()
           lower  upper
        0   20.0   40.0
    """

    widen_only: bool = False
    unit: str = "y"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise UnknownName("unit of Quantile", self.unit, UNITS)

    def _conservative(self) -> bool:
        return self.widen_only

    conservative = computed(_conservative)

    @property
    def floor(self) -> float | None:
        return 0.0 if self.widen_only else None

    def ends(self, prediction: Prediction, level: float) -> Ends:
        """Return the ends of the predictive interval, with the unit of the score at each."""
        tail = float((1 - exact_level(level)) / 2)
        one, other = prediction.quantile(tail), prediction.quantile(1 - tail)
        lower, upper = torch.minimum(one, other), torch.maximum(one, other)
        if self.unit == "y":
            return Ends(lower, upper)
        # an interval on an atom has no width: the unit is then 1 for counts, else the least float
        least = 1.0 if prediction.kind == "count" else float(torch.finfo(lower.dtype).tiny)
        if self.unit == "width":
            width = (upper - lower).clamp_min(least)
            return Ends(lower, upper, width, width)
        middle = prediction.quantile(0.5)
        below, above = (middle - lower).clamp_min(least), (upper - middle).clamp_min(least)
        return Ends(lower, upper, below, above)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        score = self.ends(prediction, level).score(y)
        return score.clamp_min(0.0) if self.widen_only else score

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        if self.widen_only:  # the score is never below 0: a negative threshold gives the empty set
            q = torch.where(q < 0, torch.full_like(q, -torch.inf), q)
        return self.ends(prediction, level).region(q, q, level)
