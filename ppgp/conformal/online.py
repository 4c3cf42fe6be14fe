"""What online conformal methods share: their settings, past scores, and the sets that result."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..data.entries.arrays import one_per_row
from ..errors import DataError, NotApplicable, SettingError, listed
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.levels import exact_level
from .scores.base import Score, not_a_prediction, not_a_score

DENOMINATOR = 10**9  # alpha_1 is the level as written, not the double next to it


@dataclass(frozen=True, eq=False)
class Online:
    """The result of an online method.

    Attributes:
        region: The set for each row in time, made before its y was observed.
        errors: [T] bool, whether the set of the row missed y.
        alphas: [T], the miscoverage that each set was made for (NaN for methods that steer the
            threshold itself).
        thresholds: [T], the threshold of the score for each set.
    """

    region: Region
    errors: Tensor
    alphas: Tensor
    thresholds: Tensor

    @property
    def coverage(self) -> float:
        """The share of rows covered."""
        return 1.0 - float(self.errors.double().mean())


def online_result(
    score: Score,
    prediction: Prediction,
    scores: Tensor,
    thresholds: list[float],
    alphas: list[float],
    level: float,
    sentence: str,
) -> Online:
    """Return the sets at these thresholds, with the rows that they missed."""
    q = torch.tensor(thresholds, dtype=torch.float64).to(scores)
    each_alpha = torch.tensor(alphas, dtype=torch.float64)
    if score.floor is not None:
        q = q.clamp_min(score.floor)
        region = score.region(prediction, q, level)
        return Online(replace(region, guarantee=sentence), scores > q, each_alpha, q)
    nothing = torch.isneginf(q)  # a set that must be empty, whatever the score
    region = score.region(prediction, torch.where(nothing, torch.zeros_like(q), q), level)
    region = replace(_emptied(region, nothing), guarantee=sentence)
    return Online(region, (scores > q) | nothing, each_alpha, q)


def _emptied(region: Region, rows: Tensor) -> Region:
    """Return the sets, those of ``rows`` [T] (bool) replaced by the empty set."""
    if region.labels is not None:
        return replace(region, labels=region.labels & ~rows[:, None])
    lower, upper = region
    lower, upper = torch.where(rows, torch.inf, lower), torch.where(rows, -torch.inf, upper)
    pieces = region.pieces
    if pieces:
        each = zip(pieces, rows.tolist(), strict=True)
        pieces = tuple(() if empty else row for row, empty in each)
    return replace(region, lower=lower, upper=upper, pieces=pieces)


def check_settings(score: Score, level: float, rates: Sequence[float], window: Any) -> None:
    """Raise the error of the first setting of an online method that is out of range."""
    if not isinstance(score, Score):
        raise not_a_score(score)
    exact_level(level)
    for rate in rates:
        if not (isinstance(rate, int | float) and rate > 0 and math.isfinite(rate)):
            raise SettingError("a rate above 0", repr(rate), "for example 0.01")
    if window is None:
        return
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        expected = "a window of at least one score, or None"
        raise SettingError(expected, repr(window), "for example 100")


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
    if not isinstance(prediction, Prediction):
        raise not_a_prediction(prediction)
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
