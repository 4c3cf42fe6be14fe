"""How far out in either tail of the predictive law y lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...numerics.float_search import Condition
from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score, ended, interval

LEAST = 0.69  # below every score: at most one half lies beyond y on one of its sides, and log 2 is 0.6931


@dataclass(frozen=True)
class PIT(Score):
    """-log min(F(y), 1 - F(y)), F the predictive CDF (of the whole mixture): the set is F^-1 of a central interval of probabilities.

    It ranks rows as |F(y) - 1/2| does, and goes on ranking them where F rounds to 0 or 1. Distributional conformal
    prediction; Chernozhukov, Wuethrich & Zhu (2021). As skewed and as wide, row by row, as the predictive law; where that
    is right the set is its central interval.
    """

    kinds = ("continuous",)
    roundings = 64

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return -torch.minimum(*prediction.log_tails(y))

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        law = prediction.by_row
        q = q.expand(len(law))
        q = torch.where(q < LEAST, torch.full_like(q, -torch.inf), q)
        log_p = -torch.where(torch.isfinite(q), q, torch.ones_like(q))

        def holds(side: int) -> Condition:
            def tail(y: Tensor, rows: Tensor | slice) -> Tensor:
                part = law if isinstance(rows, slice) else law[rows]
                return -part.log_tail(y, upper=side == 1) <= q[rows]

            return tail

        lower = ended(holds(0), law.tail_quantile(log_p), q, -1)
        upper = ended(holds(1), law.tail_quantile(log_p, upper=True), q, 1)
        return interval(lower, upper, level)
