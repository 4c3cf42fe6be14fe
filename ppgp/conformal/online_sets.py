"""What online conformal methods share: their settings, and the sets that result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import SettingError
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from .scores.base import Score, check_score


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
    check_score(score)
    exact_level(level)
    for rate in rates:
        if not (isinstance(rate, int | float) and rate > 0 and math.isfinite(rate)):
            raise SettingError("a rate above 0", repr(rate), "for example 0.01")
    if window is None:
        return
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        expected = "a window of at least one score, or None"
        raise SettingError(expected, repr(window), "for example 100")
