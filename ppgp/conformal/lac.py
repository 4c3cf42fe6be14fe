"""Label sets with the smallest average size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..prediction import Prediction
from ..region import Region
from .score import Score


@dataclass(frozen=True)
class LAC(Score):
    """1 - p_y: the labels whose probability is at least 1 - q; a set may be empty. Sadinle, Lei & Wasserman (2019)."""

    kinds = ("classes",)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        probabilities = prediction.probabilities
        return 1 - probabilities.gather(1, y.long()[:, None])[:, 0]

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        threshold = torch.as_tensor(q).reshape(-1, 1)
        return Region(level, "", labels=1 - prediction.probabilities <= threshold)
