"""Conformalised quantile regression on the predictive quantiles."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import UnknownName
from ...posterior.prediction import Prediction
from ...posterior.region import Region, exact_level
from .base import Score, interval

UNITS = ("y", "median", "width")


@dataclass(frozen=True)
class Quantile(Score):
    """max(l - y, y - u), with [l, u] the central predictive interval at the level. Romano, Patterson & Candes (2019), equation 6.

    A negative threshold narrows an interval that was too wide; where that turns it inside out the set is empty.

    Args:
        widen_only: clip the score at 0, so that the set only ever grows: it covers at least as often as the
            model's own interval, and more than the level wherever that was already wide enough.
        unit: of the score: "y"; "median" (each side in distances of its end from the median: CQR-m) or "width" (of the interval:
            CQR-r), so that wide rows are widened by more. Sesia & Candes (2020).
    """

    widen_only: bool = False
    unit: str = "y"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise UnknownName("unit of Quantile", self.unit, UNITS)

    @property
    def conservative(self) -> bool:  # type: ignore[override]
        return self.widen_only

    def _ends(self, prediction: Prediction, level: float) -> tuple[Tensor, Tensor, Tensor | float, Tensor | float]:
        """The interval's ends, and the unit of the score at each."""
        tail = float((1 - exact_level(level)) / 2)
        lower, upper = prediction.quantile(tail), prediction.quantile(1 - tail)
        if self.unit == "y":
            return lower, upper, 1.0, 1.0
        # an atom of the law can have no width: counts are then measured in counts, numbers in next to nothing
        least = 1.0 if prediction.kind == "count" else float(torch.finfo(lower.dtype).tiny)
        middle = prediction.quantile(0.5)
        below, above = (middle - lower, upper - middle) if self.unit == "median" else (upper - lower, upper - lower)
        return lower, upper, below.clamp_min(least), above.clamp_min(least)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        lower, upper, below, above = self._ends(prediction, level)
        score = torch.maximum((lower - y) / below, (y - upper) / above)
        return score.clamp_min(0.0) if self.widen_only else score

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        lower, upper, below, above = self._ends(prediction, level)
        if self.widen_only:
            # the score is never below 0, so a threshold below 0 holds nothing
            none = torch.as_tensor(q < 0).expand(lower.shape)
            return interval(
                torch.where(none, torch.inf, lower - q * below), torch.where(none, -torch.inf, upper + q * above), level
            )
        return interval(lower - q * below, upper + q * above, level)
