"""The residual with its sign, one threshold a side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score, interval


@dataclass(frozen=True)
class Signed(Score):
    """(mean - y, y - mean), each side at half the miscoverage: intervals that need not be symmetric. Linusson et al. (2014).

    Each side misses at most (1 - level) / 2 of the time, so that both hold at once at the level; the slack above it is
    up to 2 / (n + 1). A finite set needs twice the rows that a symmetric score needs.

    Args:
        normalized: in units of the predictive standard deviation.
    """

    normalized: bool = False
    sides: ClassVar[int] = 2

    def _unit(self, prediction: Prediction) -> Tensor:
        return prediction.std if self.normalized else torch.ones_like(prediction.mean)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        residual = (y - prediction.mean) / self._unit(prediction)
        return torch.stack([-residual, residual], -1)

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        mean, unit = prediction.mean, self._unit(prediction)
        below, above = (q[..., 0], q[..., 1]) if q.ndim and q.shape[-1] == 2 else (q, q)
        return interval(mean - below * unit, mean + above * unit, level)
