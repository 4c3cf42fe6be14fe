"""How far the cumulative probability lies from one half."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import ULPS, Score, eased, interval


@dataclass(frozen=True)
class PIT(Score):
    """|F(y) - 1/2|, F the predictive CDF (of the whole mixture): the set is F^-1 of a central interval of probabilities.

    Distributional conformal prediction; Chernozhukov, Wuethrich & Zhu (2021). As skewed and as wide, row by row, as the
    predictive law; where that is right the set is its central interval.
    """

    kinds = ("continuous",)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return (prediction.cdf(y) - 0.5).abs()

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        q = eased(q.to(prediction.mean)).expand(len(prediction))
        whole, none = q >= 0.5, q < 0
        half = torch.where(whole | none, torch.zeros_like(q), q)
        above = (0.5 + half).clamp_max(1 - torch.finfo(q.dtype).eps / 2)
        slack = ULPS * torch.finfo(q.dtype).eps * prediction.std  # a quantile of a mixture is found to so many
        lower = torch.where(whole, -torch.inf, prediction.quantile(0.5 - half) - slack)
        upper = torch.where(whole, torch.inf, prediction.quantile(above) + slack)
        return interval(lower.masked_fill(none, torch.nan), upper.masked_fill(none, torch.nan), level)
