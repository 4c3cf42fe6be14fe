"""How far y lies in either tail of the predictive distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Condition, Score, end_of_set, interval

# below every score: at most half the probability lies beyond y on one side, and log 2 is 0.6931
LEAST = 0.69


@dataclass(frozen=True)
class PIT(Score):
    """The score -log min(F(y), 1 - F(y)), with F the predictive CDF (of the whole mixture).

    The set is F^-1 of a central interval of probabilities. The score ranks rows as |F(y) - 1/2|
    does, also where F rounds to 0 or 1. Distributional conformal prediction; Chernozhukov,
    Wuethrich & Zhu (2021). Each set is as skewed and as wide as the predictive distribution of its
    row; where that is right, the set is its central interval. The scores [n] are in nats: minus the
    log of a probability, at least log 2.

    Raises:
        NotApplicable: By ``calibrate`` and by its calibrator, if y is a count or a class; by the
            calibrator, if the predictions have no CDF (points or quantiles alone).

    Examples:
        Exponential predictions. The second smallest tail probability of nine is 0.1, so that the
        sets lie between the quantiles at 0.1 and 0.9:

        >>> import ppgp
        >>> import pyro.distributions as dist
        >>> import torch
        >>> from ppgp import conformal
        >>> tails = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 0.95]).double()
        >>> calibration = ppgp.Prediction(dist.Exponential(torch.ones(1, 9).double()))
        >>> calibrator = ppgp.calibrate(conformal.PIT(), calibration, -torch.log(tails))
        >>> new = ppgp.Prediction(dist.Exponential(torch.tensor([[1.0, 0.1]]).double()))
        >>> calibrator(new, level=0.8).to_frame().round(2)
           lower  upper
        0   0.11    2.30
        1   1.05  23.03
    """

    kinds = ("continuous",)
    roundings = 64
    of_level = False

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return -torch.minimum(*prediction.log_tails(y))

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        predictive = prediction.by_row
        q = q.expand(len(predictive))
        q = torch.where(q < LEAST, torch.full_like(q, -torch.inf), q)
        log_p = -torch.where(torch.isfinite(q), q, torch.ones_like(q))

        def holds(side: int) -> Condition:
            def tail(y: Tensor, rows: Tensor | slice) -> Tensor:
                part = predictive if isinstance(rows, slice) else predictive[rows]
                return -part.log_tail(y, upper=side == 1) <= q[rows]

            return tail

        lower = end_of_set(holds(0), predictive.tail_quantile(log_p), q, -1)
        upper = end_of_set(holds(1), predictive.tail_quantile(log_p, upper=True), q, 1)
        return interval(lower, upper, level)
