"""The sets of CV+ and jackknife+, given the predictions of each fold, and what they guarantee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from .cross_ends import order_statistics
from .rounding import rounded_down
from .scores.aps import APS
from .scores.base import Score, widened
from .scores.lac import LAC

REPEATED = "exchangeable rows, the whole fit repeated for each fold"


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
