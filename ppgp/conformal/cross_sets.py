"""The sets of CV+ and jackknife+, given the predictions of each fold, and what they guarantee.

The set of left-out row i at a new row holds the values whose score there, by the fit that left row
i out, is at most the score of row i. Fold k has n_k left-out rows, so that the new rows have
n = sum n_k sets each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.levels import exact_level
from .rounding import rounded_down
from .scores.aps import APS
from .scores.base import Ends, Score, last_inside, widened
from .scores.lac import LAC

REPEATED = "exchangeable rows, the whole fit repeated for each fold"
#: with fewer rows per fold it is as quick to compute every set
FEWEST_ROWS_PER_FOLD = 32
BLOCK = 250_000  # ends of sets computed at a time


def promised_coverage(
    sizes: Sequence[int], level: float, whole: Sequence[int] | None = None
) -> float:
    """Return the guaranteed coverage: 1 - 2 alpha, minus a cost for few folds.

    Barber, Candes, Ramdas & Tibshirani (2021), theorems 1 and 4. The theorem is about folds of one
    size and takes the smaller of two costs. The second, (1 - K/n) / (K + 1), needs folds of one
    size: all n + n/K rows of K + 1 folds are then exchangeable. The first holds for any sizes m_k:
    a missed row has sum (m_k + 1) p_k <= alpha (n + 1) + K - 1, where p_k is its conformal p-value
    among the rows of fold k, and a weighted mean of p-values is at most x with probability 2 x or
    less (Vovk & Wang 2020).

    Args:
        sizes: The number of left-out rows of each fold that are ranked.
        level: The nominal level, in (0, 1).
        whole: The number of all left-out rows of each fold, where some are of another category.
            They too must be of one size for the second cost. None: ``sizes``.
    """
    n, K, alpha = sum(sizes), len(sizes), float(1 - exact_level(level))
    cost = 2 * (1 - 1 / K) / (n / K + 1)
    if _of_one_size(sizes) and (whole is None or _of_one_size(whole)):
        cost = min(cost, (1 - K / n) / (K + 1))
    return 1 - 2 * alpha - cost


def cross_guarantee(sizes: Sequence[int], level: float, whole: Sequence[int] | None = None) -> str:
    """Return the sentence about folds of these sizes, each left out of a whole fit."""
    promised = promised_coverage(sizes, level, whole)
    if promised > 0:
        return f"coverage >= {rounded_down(promised, 3)} ({REPEATED})"
    folds = f"{len(sizes)} folds"
    if not _of_one_size(sizes):
        folds += " of unequal sizes"
    return f"none: 1 - 2 (1 - level), less what {folds} of {sum(sizes)} rows cost, is not above 0"


def _of_one_size(sizes: Sequence[int]) -> bool:
    return len(set(sizes)) == 1


def cross_region(
    score: Score,
    new: list[Prediction],
    scores: list[Tensor],
    level: float,
    guarantee: str | None = None,
) -> Region:
    """Return the CV+ set at each new row.

    Args:
        score: The conformal score, with one side.
        new: The predictions of the m new rows, one per fold.
        scores: The scores of the left-out rows, [n_k] for each fold.
        level: The nominal level, in (0, 1).
        guarantee: The sentence of the Region; None: ``cross_guarantee``.
    """
    if guarantee is None:
        guarantee = cross_guarantee(list(map(len, scores)), level)
    alpha, n = 1 - exact_level(level), sum(map(len, scores))
    if isinstance(score, LAC | APS):
        region = _labels(score, new, scores, alpha, level)
    else:
        low, high = math.floor(alpha * (n + 1)), math.ceil((1 - alpha) * (n + 1))
        if low < 1 or high > n:
            infinite = torch.full((len(new[0]),), torch.inf, dtype=torch.float64)
            region = Region(level, "", -infinite, infinite)
            guarantee = f"{guarantee}: infinite, as {n} rows are too few"
        else:
            lower, upper = order_statistics(score, new, scores, low, high, level)
            region = widened(lower, upper, level)
    return replace(region, guarantee=guarantee, n_calibration=n)


def _labels(
    score: LAC | APS, new: list[Prediction], scores: list[Tensor], alpha: Fraction, level: float
) -> Region:
    """Return the labels whose score is above those of too few left-out rows.

    A row with the predictive distribution of a left-out row, computed in another batch, may have a
    score that is some roundings higher. It does not count as above the other.
    """
    beaten = []
    for prediction, left_out in zip(new, scores, strict=True):
        ordered, own = left_out.sort().values, score.scores(prediction)
        margin = score.roundings * torch.finfo(own.dtype).eps * own.abs()
        beaten.append(torch.searchsorted(ordered, (own - margin).contiguous()))
    n = sum(map(len, scores))
    labels = torch.stack(beaten).sum(0) < float((1 - alpha) * (n + 1))
    return Region(level, "", labels=labels, classes=new[0].classes)


def order_statistics(
    score: Score,
    new: list[Prediction],
    scores: list[Tensor],
    low: int,
    high: int,
    level: float,
) -> tuple[Tensor, Tensor]:
    """Return the ``low``-th smallest lower end and the ``high``-th smallest upper end per new row.

    An empty set counts as the median of its fit: its ends are placed where it has shrunk to.

    Args:
        score: The conformal score.
        new: The predictions of the m new rows, one per fold.
        scores: The scores of the left-out rows, [n_k] for each fold.
        low: From 1 to n.
        high: From 1 to n.
        level: The nominal coverage.

    Returns:
        Two tensors [m].
    """
    ends = [score.ends(prediction, level) for prediction in new]
    known = [one for one in ends if one is not None and one.finite()]
    n = sum(map(len, scores))
    many = n >= FEWEST_ROWS_PER_FOLD * len(scores)
    closed = len(known) == len(new) and bool(torch.isfinite(torch.cat(scores)).all())
    if not many or not closed:
        if closed:
            every_lower, every_upper = _of_known_ends(new, known, scores, level)
        else:
            every_lower, every_upper = of_every_set(score, new, scores, level)
        return every_lower.kthvalue(low, 0).values, every_upper.kthvalue(high, 0).values
    folds = [
        _Fold(score, prediction, one, s, level)
        for prediction, one, s in zip(new, known, scores, strict=True)
    ]

    def holds_below(y: Tensor, rows: Tensor | slice) -> Tensor:
        return torch.stack([fold.reached(y, rows, -1) for fold in folds]).sum(0) >= low

    def holds_above(y: Tensor, rows: Tensor | slice) -> Tensor:
        return torch.stack([fold.reached(y, rows, 1) for fold in folds]).sum(0) >= n - high + 1

    guesses = [fold.region(fold.scores[len(fold.scores) * low // (n + 1)]) for fold in folds]
    lower = torch.stack([guess.lower for guess in guesses]).median(0).values
    upper = torch.stack([guess.upper for guess in guesses]).median(0).values
    return last_inside(holds_below, lower, -1), last_inside(holds_above, upper, 1)


def of_every_set(
    score: Score, new: list[Prediction], scores: list[Tensor], level: float
) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper ends of all n sets at all m rows, [n, m]."""
    lower, upper = [], []
    for prediction, of_fold in zip(new, scores, strict=True):
        regions: list[Any] = [score.region(prediction, threshold, level) for threshold in of_fold]
        empty = torch.stack([region.empty for region in regions])
        low = torch.stack([region.lower for region in regions])
        high = torch.stack([region.upper for region in regions])
        if bool(empty.any()):
            middle = prediction.quantile(0.5)
            low, high = torch.where(empty, middle, low), torch.where(empty, middle, high)
        lower.append(low)
        upper.append(high)
    return torch.cat(lower), torch.cat(upper)


def _of_known_ends(
    new: list[Prediction], ends: list[Ends], scores: list[Tensor], level: float
) -> tuple[Tensor, Tensor]:
    """Return ``of_every_set`` for a score whose ``Ends`` are finite, many sets at a time."""
    m = len(ends[0].lower)
    fold = torch.cat([torch.full((len(s),), k) for k, s in enumerate(scores)])
    thresholds = torch.cat(scores).to(ends[0].lower)
    stacked = {
        name: torch.stack([getattr(one, name) for one in ends])
        for name in ("lower", "upper", "below", "above")
        if getattr(ends[0], name) is not None
    }
    middle = torch.empty(0)
    lower, upper = [], []
    for some in torch.arange(len(fold)).split(max(1, BLOCK // m)):
        these = Ends(**{name: value[fold[some]].reshape(-1) for name, value in stacked.items()})
        q = thresholds[some].repeat_interleave(m)
        region: Any = these.region(q, q, level)
        low, high = region.lower, region.upper
        if bool(region.empty.any()):
            if not len(middle):
                middle = torch.stack([prediction.quantile(0.5) for prediction in new])
            at = middle[fold[some]].reshape(-1)
            low, high = torch.where(region.empty, at, low), torch.where(region.empty, at, high)
        lower.append(low.reshape(-1, m))
        upper.append(high.reshape(-1, m))
    return torch.cat(lower), torch.cat(upper)


class _Fold:
    """The sets of the left-out rows of one fold at the m new rows.

    Args:
        score: The conformal score.
        prediction: Of the new rows, by the fit that left the fold out.
        ends: The ``Ends`` of the score at these rows.
        scores: Of the left-out rows, [n_k].
        level: The nominal coverage.
    """

    def __init__(
        self, score: Score, prediction: Prediction, ends: Ends, scores: Tensor, level: float
    ) -> None:
        self.ends, self.level = ends, level
        self.scores = scores.to(ends.lower).sort().values
        self.empty = self._how_many_are_empty()
        # no set is placed at the middle where none is empty
        self.middle = prediction.quantile(0.5) if bool(self.empty.any()) else ends.lower

    def region(self, thresholds: Tensor) -> Any:
        """Return the sets of some thresholds, [] or [m]."""
        return self.ends.region(thresholds, thresholds, self.level)

    def _how_many_are_empty(self) -> Tensor:
        """Return how many sets are empty per new row [m]: those of the smallest scores."""
        low = torch.zeros(len(self.ends.lower), dtype=torch.long, device=self.ends.lower.device)
        if not bool(self.region(self.scores[0]).empty.any()):
            return low
        high = torch.full_like(low, len(self.scores))
        while bool((low < high).any()):
            number = (low + high) // 2
            at = self.scores[number.clamp_max(len(self.scores) - 1)]
            empty = self.region(at).empty & (low < high)
            low = torch.where(empty, number + 1, low)
            high = torch.where(empty, high, torch.minimum(high, number))
        return low

    def reached(self, y: Tensor, rows: Tensor | slice, outward: int) -> Tensor:
        """Return how many sets have their end at y or further inside, per row.

        Args:
            y: Values at the rows, [k].
            rows: Numbers of the rows, [k].
            outward: 1 for the upper end, -1 for the lower.
        """
        side = self.ends[rows].sides(y)[(1 + outward) // 2]
        below = torch.searchsorted(self.scores, side.contiguous())
        empty, middle = self.empty[rows], self.middle[rows]
        inside = outward * y <= outward * middle
        return len(self.scores) - torch.maximum(below, empty) + torch.where(inside, empty, 0)
