"""Label sets with the smallest average size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...overrides import computed
from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score


@dataclass(frozen=True)
class LAC(Score):
    """The score 1 - p_y: sets of the labels whose probability is at least 1 - q.

    A set may be empty. Sadinle, Lei & Wasserman (2019).

    Args:
        keep_best: whether every set holds the most probable label, so that none is empty; the
            coverage then exceeds the level.
    """

    keep_best: bool = False
    kinds = ("classes",)
    of_level = False

    def _conservative(self) -> bool:
        return self.keep_best

    conservative = computed(_conservative)

    @property
    def floor(self) -> float | None:
        return -math.inf if self.keep_best else None

    def scores(self, prediction: Prediction) -> Tensor:
        """Return the score of every label, [n, K]."""
        p = prediction.probabilities
        if not self.keep_best:
            return 1 - p
        return (1 - p).scatter(1, p.argmax(-1, keepdim=True), -torch.inf)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return self.scores(prediction).gather(1, y.long()[:, None])[:, 0]

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        kept = self.scores(prediction) <= torch.as_tensor(q).reshape(-1, 1)
        return Region(level, "", labels=kept, classes=prediction.classes)
