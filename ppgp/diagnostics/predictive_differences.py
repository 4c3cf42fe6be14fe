"""Differences between the predictions of an approximation and of a reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from ..distributions import univariate
from ..posterior.prediction import Prediction
from .verdicts import AGREES, MEAN_TOLERANCE, REJECTED, SPREAD, SPREAD_TOLERANCE, standard_errors

__all__ = ["PredictiveDifference", "predictive_difference"]


@dataclass(frozen=True)
class PredictiveDifference:
    """How the predictive distributions of two posteriors differ at the same rows.

    Attributes:
        word: The verdict: "agrees"; "means agree, spread does not" (the reference gives its
            intervals another probability than they claim); "do not use" (its means are off).
        reason: The differences behind it.
        shift: The root mean square, over rows, of the difference of means in predictive sds of the
            reference.
        content: The probability that the reference gives to its intervals, on average over rows.
    """

    word: str
    reason: str
    shift: float = math.nan
    content: float = math.nan


def predictive_difference(
    own: Prediction, reference: Prediction, level: float, sizes: tuple[float, float]
) -> PredictiveDifference:
    """Judge predictions by those of a reference, at the same rows.

    Each row counts max(0, |difference| - c * its Monte Carlo error). The factor c is such that
    equal distributions are reported as different with probability FALSE_ALARM at most. For classes,
    the shift is that of the function of y whose mean differs most, in its sds, and the interval is
    the smallest set of labels that holds ``level``.

    Args:
        own: The predictions to judge.
        reference: The predictions taken as true.
        level: Of the central intervals.
        sizes: The effective numbers of posterior draws behind ``own`` and behind ``reference``.
    """
    allowed = standard_errors(2 * len(own))  # how many errors a difference may be
    classes = own.kind == "classes"
    if classes:
        shift, shift_error = _shift_of_classes(own, reference, sizes)
        sets = "label sets"
    else:
        shift, shift_error = _shift_of_means(own, reference, sizes)
        sets = f"{level:.0%} intervals"
    held, claimed, error = _contents(own, reference, level, sizes)
    beyond = (shift - allowed * shift_error).clamp_min(0.0)
    missing = ((held - claimed).abs() - allowed * error).clamp_min(0.0)
    size, content = float(shift.square().mean().sqrt()), float(held.mean())
    matters = float(missing.mean()) > _tolerance(level)
    word = AGREES
    if matters:
        word = SPREAD
    if float(beyond.square().mean().sqrt()) > MEAN_TOLERANCE:
        word = REJECTED
    verb, weight = "does not differ", ""
    if bool((beyond > 0).any() or (missing > 0).any()):
        verb = "differs"
        weight = ", which does not matter" if word == AGREES else ", which matters"
    reason = (
        f"{verb} by more than Monte Carlo error: means {size:.2g} predictive sd apart "
        f"(worst row {float(shift.max()):.2g}); its {sets} have probability {content:.1%} under "
        f"the reference where they claim {float(claimed.mean()):.1%}{weight}"
    )
    return PredictiveDifference(word, reason, size, content)


def _tolerance(level: float) -> float:
    """Return the coverage that a normal interval loses if its sd is SPREAD_TOLERANCE too small."""
    z = float(ndtri(0.5 + 0.5 * level))
    return 2 * float(ndtr(z) - ndtr(z * (1 - SPREAD_TOLERANCE)))


def _shift_of_means(
    own: Prediction, reference: Prediction, sizes: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Return the differences of the means [n] in predictive sds, and their Monte Carlo errors.

    Both are 0 where a distribution has no mean or no sd; its interval is judged all the same.
    """
    sd = reference.std
    shift = (own.mean - reference.mean).abs() / sd
    error = (own.epistemic / sizes[0] + reference.epistemic / sizes[1]).sqrt() / sd
    known, zero = torch.isfinite(shift) & torch.isfinite(error), torch.zeros_like(sd)
    return torch.where(known, shift, zero), torch.where(known, error, zero)


def _shift_of_classes(
    own: Prediction, reference: Prediction, sizes: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Return how far the probabilities of the classes of each row are apart [n], and the error.

    Of all functions of the label, the one whose mean differs most is taken. In its sds, the
    difference is the root of chi square, sum_k (p_k - q_k)^2 / m_k, where m is the average of the
    probabilities p and q.
    """
    ours, theirs = own.probabilities, reference.probabilities
    middle = (0.5 * (ours + theirs)).clamp_min(torch.finfo(ours.dtype).tiny)
    by_draw = (univariate.probabilities(p.distribution) for p in (own, reference))
    own_variance, reference_variance = (p.var(0, correction=0) for p in by_draw)
    variance = own_variance / sizes[0] + reference_variance / sizes[1]
    shift = ((ours - theirs).square() / middle).sum(-1).sqrt()
    return shift, (variance / middle).sum(-1).sqrt()


def _contents(
    own: Prediction, reference: Prediction, level: float, sizes: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the probability of its sets under the reference and under its own distribution.

    The third value is the error of their difference; all are [n].
    """
    if own.kind == "classes":
        p, order = own.probabilities.sort(-1, descending=True)
        kept = torch.zeros_like(p).scatter(-1, order, (p.cumsum(-1) - p < level).to(p))
        by_draw = (univariate.probabilities(each.distribution) for each in (own, reference))
        ours, theirs = ((probabilities * kept).sum(-1) for probabilities in by_draw)
    else:
        lower, upper = own.interval(level)
        if own.kind == "count":  # the lower end of an interval of counts belongs to it
            lower = lower - own.scale
        ours, theirs = (p.cdf_by_draw(upper) - p.cdf_by_draw(lower) for p in (own, reference))
    variance = ours.var(0, correction=0) / sizes[0] + theirs.var(0, correction=0) / sizes[1]
    return theirs.mean(0), ours.mean(0), variance.sqrt()
