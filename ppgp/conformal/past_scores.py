"""The scores of a sequence and of the rows before it, and their conformal threshold."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..data.entries.arrays import one_per_row
from ..errors import DataError, NotApplicable, SettingError, listed
from ..posterior.prediction import Prediction
from .scores.base import Score, check_prediction

DENOMINATOR = 10**9  # alpha_1 is the level as written, not the double next to it


class PastScores:
    """The past scores (at most ``window`` of them), and their conformal threshold."""

    def __init__(self, scores: Sequence[float], window: int | None) -> None:
        self.window = window
        self.in_time: list[float] = []
        self.ordered: list[float] = []
        for s in scores:
            self.add(s)

    def add(self, score: float) -> None:
        self.in_time.append(score)
        bisect.insort(self.ordered, score)
        if self.window is not None and len(self.in_time) > self.window:
            del self.ordered[bisect.bisect_left(self.ordered, self.in_time.pop(0))]

    def threshold(self, alpha: float) -> float:
        """Return the threshold at miscoverage alpha, which may lie outside (0, 1).

        It is +inf at alpha <= 0 and -inf (nothing is covered) at alpha >= 1: the long-run bound
        needs both.
        """
        if alpha <= 0:
            return math.inf
        if alpha >= 1:
            return -math.inf
        share = 1 - Fraction(alpha).limit_denominator(DENOMINATOR)
        k = max(math.ceil((len(self.ordered) + 1) * share), 1)  # an alpha next to 1 rounds to 1
        if k > len(self.ordered):
            return math.inf
        return self.ordered[k - 1]


def in_dtype(number: float, dtype: torch.dtype) -> float:
    """Return a threshold as the sets will have it: the misses must be those of the sets."""
    if dtype == torch.float64:
        return number
    return torch.tensor(number, dtype=dtype).item()


def is_missed(score: float, threshold: float, floor: float | None) -> float:
    """Return 1 where the row is not covered, else 0.

    A threshold of -inf covers nothing, unless the score's sets are never empty.
    """
    if floor is not None:
        return float(score > max(threshold, floor))
    return float(score > threshold or threshold == -math.inf)


def sequence_scores(
    score: Score, prediction: Prediction, y: Any, level: float, calibration: Any
) -> tuple[Tensor, list[float]]:
    """Return the scores of the sequence, and of the rows before it, at the nominal level."""
    check_prediction(prediction)
    score.check(prediction)
    if score.sides != 1:
        do = "use Absolute, Normalized, Quantile or PIT"
        raise NotApplicable("a score with one side", repr(score), do)
    y = one_per_row(y, len(prediction), do="pass the y of those rows, in their order")
    scores = score.score(prediction, y, level)
    bad = torch.nonzero(torch.isnan(scores)).flatten().tolist()
    if bad:
        got = f"NaN in {listed(bad, 'row')}"
        raise DataError("finite scores", got, "check the predictions of those rows")
    return scores, _earlier_scores(score, calibration, level, scores.dtype)


def _earlier_scores(
    score: Score, calibration: Any, level: float, dtype: torch.dtype
) -> list[float]:
    """Return the scores of the rows before the first, rounded to the dtype of the sequence.

    Raises:
        SettingError: If they are scores of another kind, from which no threshold for this one
            follows.
        NotApplicable: If the rows have groups or weights, which online methods do not use.
    """
    if calibration is None:
        return []
    if calibration.score != score:
        do = "calibrate with the score of the online method"
        raise SettingError(f"calibration rows scored by {score!r}", repr(calibration.score), do)
    for name in ("groups", "weights"):
        if getattr(calibration, name) is not None:
            expected = "calibration rows that all count alike"
            raise NotApplicable(expected, name, "calibrate without them")
    return calibration.scores(level).to(dtype).tolist()
