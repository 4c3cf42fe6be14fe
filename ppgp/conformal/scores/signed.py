"""The residual with its sign, one threshold a side."""

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
    """(mean - y, y - mean), each side at half the miscoverage: intervals that need not be symmetric. Linusson et al. (2014).

    Each side misses at most (1 - level) / 2 of the time, so that both hold at once at the level; the slack above it is
    up to 2 / (n + 1). A finite set needs twice the rows that a symmetric score needs.

    Args:
        normalized: in units of the predictive standard deviation (``Prediction.spread``).
    """

    normalized: bool = False
    sides: ClassVar[int] = 2

    def _ends(self, prediction: Prediction) -> Ends:
        centre, unit = prediction.centre, prediction.spread if self.normalized else None
        return Ends(centre, centre, unit, unit)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        sides = torch.stack(self._ends(prediction).sides(y), -1)
        return sides.clamp_min(
            torch.finfo(sides.dtype).min
        )  # -inf, as a threshold, is for the set that holds nothing

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        below, above = (q[..., 0], q[..., 1]) if q.ndim and q.shape[-1] == 2 else (q, q)
        return self._ends(prediction).region(below, above, level)
