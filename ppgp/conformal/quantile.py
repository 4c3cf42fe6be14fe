"""Conformalised quantile regression on the predictive quantiles."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..prediction import Prediction
from ..region import Region, exact_level
from .score import Score, interval


@dataclass(frozen=True)
class Quantile(Score):
    """max(l - y, y - u), with [l, u] the central predictive interval at the level. Romano, Patterson & Candes (2019), equation 6.

    A negative threshold narrows an interval that was too wide; where that turns it inside out the set is empty.

    Args:
        widen_only: clip the score at 0, so that the set only ever grows: it covers at least as often as the
            model's own interval, and more than the level wherever that was already wide enough.
    """

    widen_only: bool = False

    @property
    def conservative(self) -> bool:  # type: ignore[override]
        return self.widen_only

    def _ends(self, prediction: Prediction, level: float) -> tuple[Tensor, Tensor]:
        tail = float((1 - exact_level(level)) / 2)
        return prediction.quantile(tail), prediction.quantile(1 - tail)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        lower, upper = self._ends(prediction, level)
        score = torch.maximum(lower - y, y - upper)
        return score.clamp_min(0.0) if self.widen_only else score

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        lower, upper = self._ends(prediction, level)
        region = interval(lower - q, upper + q, level)
        if self.widen_only:
            # the score is never below 0, so a threshold below 0 holds nothing
            none = torch.as_tensor(q < 0).expand(lower.shape)
            return interval(torch.where(none, torch.inf, lower - q), torch.where(none, -torch.inf, upper + q), level)
        return region
