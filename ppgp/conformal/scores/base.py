"""The interface of every conformal score: how strange y is under a prediction, and the set of y that is not stranger than q."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...errors import NotApplicable
from ...posterior.prediction import Prediction
from ...posterior.region import Region


class Score:
    """A pair that keeps one law: ``y in region(prediction, q, level)  <=>  score(prediction, y, level) <= q`` in every column.

    A new score gives ``score`` and ``region``. Both take the level, as some scores need it; larger means stranger.
    """

    #: the kinds of Prediction it is for
    kinds: ClassVar[tuple[str, ...]] = ("continuous", "count")
    #: columns of the score: 2 for one a side
    sides: ClassVar[int] = 1
    #: whether the set can only grow beyond the model's own, so that coverage has no upper bound
    conservative: ClassVar[bool] = False

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        """[n], or [n, 2] with one column a side."""
        raise NotImplementedError

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        """The set of y with a score of at most q; q is a scalar, or [n] with one threshold a row."""
        raise NotImplementedError

    def check(self, prediction: Prediction) -> None:
        """Raises NotApplicable where the score is not for such a y."""
        if prediction.kind not in self.kinds:
            advice = (
                "use conformal.LAC()"
                if prediction.kind == "classes"
                else "use conformal.Absolute(), Normalized() or Quantile()"
            )
            raise NotApplicable(f"a law of {' or '.join(self.kinds)} y for {type(self).__name__}", prediction.kind, advice)


ULPS = 8  # roundings that a score and its inverse may differ by


def interval(lower: Tensor, upper: Tensor, level: float) -> Region:
    """An interval; where the ends have crossed it is empty, and both are NaN.

    Each end is moved out by a few roundings: where y repeats, a threshold is the score of many rows, and an end one rounding
    too far in would lose them all.
    """
    crossed = lower > upper
    size = torch.maximum(lower.abs(), upper.abs())
    slack = (
        ULPS * torch.finfo(lower.dtype).eps * torch.where(torch.isfinite(size), size, torch.minimum(lower.abs(), upper.abs()))
    )
    slack = torch.nan_to_num(slack, nan=0.0, posinf=0.0)
    nan = torch.full_like(lower, torch.nan)
    return Region(level, "", torch.where(crossed, nan, lower - slack), torch.where(crossed, nan, upper + slack))


def eased(q: Tensor) -> Tensor:
    """A threshold raised by a few roundings, for scores whose inverse is not simple arithmetic."""
    return torch.where(torch.isfinite(q), q + ULPS * torch.finfo(q.dtype).eps * (1 + q.abs()), q)
