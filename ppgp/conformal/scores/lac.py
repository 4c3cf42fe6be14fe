"""Label sets with the smallest average size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score


@dataclass(frozen=True)
class LAC(Score):
    """1 - p_y: the labels whose probability is at least 1 - q; a set may be empty. Sadinle, Lei & Wasserman (2019).

    Args:
        keep_best: count the most probable label as never strange, so that no set is empty; covers more than the level.
    """

    keep_best: bool = False
    kinds = ("classes",)

    @property
    def conservative(self) -> bool:  # type: ignore[override]
        return self.keep_best

    @property
    def floor(self) -> float | None:
        return -math.inf if self.keep_best else None

    def scores(self, prediction: Prediction) -> Tensor:
        """[n, K]: the score of every label."""
        p = prediction.probabilities
        return (
            (1 - p).scatter(1, p.argmax(-1, keepdim=True), -torch.inf) if self.keep_best else 1 - p
        )

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return self.scores(prediction).gather(1, y.long()[:, None])[:, 0]

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        return Region(
            level, "", labels=self.scores(prediction) <= torch.as_tensor(q).reshape(-1, 1)
        )
