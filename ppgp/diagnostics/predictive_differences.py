"""Whether the predictions of an approximation differ from the reference's, by how much, and whether that matters for intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from ..numerics import univariate
from ..posterior.prediction import Prediction
from .verdicts import AGREES, MEAN_TOLERANCE, REJECTED, SPREAD, SPREAD_TOLERANCE, standard_errors

__all__ = ["PredictiveDifference", "predictive_difference"]


@dataclass(frozen=True)
class PredictiveDifference:
    """How the predictive laws of two posteriors differ at the same rows.

    Attributes:
        word: "agrees"; "means agree, spread does not" (its intervals hold another share of the reference's law than they claim);
            "do not use" (its means are off).
        reason: the figures.
        shift: root mean square, over rows, of the difference of means in sds of the reference's law.
        content: what its intervals hold of the reference's law, on average over rows.
    """

    word: str
    reason: str
    shift: float = math.nan
    content: float = math.nan


def predictive_difference(
    own: Prediction, reference: Prediction, level: float, sizes: tuple[float, float]
) -> PredictiveDifference:
    """Judge the law of ``own`` by that of ``reference``, at the same rows.

    A row counts by what its difference exceeds its Monte Carlo error, of so many standard errors that laws which are the same are
    told apart with probability FALSE_ALARM at most. For classes, the shift is that of the function of y whose mean moves most, in
    its sds, and the interval is the smallest set of labels that holds ``level``.

    Args:
        level: of the central intervals.
        sizes: effective numbers of posterior draws behind each, of ``own`` and of ``reference``.
    """
    errors = standard_errors(2 * len(own))
    classes = own.kind == "classes"
    shift, shift_error = (_of_classes if classes else _of_means)(own, reference, sizes)
    held, claimed, error = _contents(own, reference, level, sizes)
    beyond = (shift - errors * shift_error).clamp_min(0.0)
    missing = ((held - claimed).abs() - errors * error).clamp_min(0.0)
    size, typical = float(shift.square().mean().sqrt()), float(beyond.square().mean().sqrt())
    content, off = float(held.mean()), float(missing.mean())
    matters = off > _tolerance(level)
    differ = bool((beyond > 0).any() or (missing > 0).any())
    word = REJECTED if typical > MEAN_TOLERANCE else SPREAD if matters else AGREES
    sets = "label sets" if classes else f"{level:.0%} intervals"
    weight = ", which matters" if matters else ", which does not matter"
    reason = (
        f"{'differs' if differ else 'does not differ'} by more than Monte Carlo error: means {size:.2g} predictive sd apart "
        f"(worst row {float(shift.max()):.2g}); its {sets} hold {content:.1%} of the reference's law "
        f"where they claim {float(claimed.mean()):.1%}{weight if differ else ''}"
    )
    return PredictiveDifference(word, reason, size, content)


def _tolerance(level: float) -> float:
    """What a normal law's interval at this level loses where its sd is too small by SPREAD_TOLERANCE."""
    z = float(ndtri(0.5 + 0.5 * level))
    return 2 * float(ndtr(z) - ndtr(z * (1 - SPREAD_TOLERANCE)))


def _of_means(
    own: Prediction, reference: Prediction, sizes: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Differences of the means [n] in predictive sds, and their errors; 0 where a law has no mean or no sd: see its interval."""
    sd = reference.std
    error = sum(
        (p.epistemic / size for p, size in zip((own, reference), sizes, strict=True)),
        torch.zeros_like(sd),
    ).sqrt()
    shift = (own.mean - reference.mean).abs() / sd
    known = torch.isfinite(shift) & torch.isfinite(error / sd)
    return torch.where(known, shift, torch.zeros_like(sd)), torch.where(
        known, error / sd, torch.zeros_like(sd)
    )


def _of_classes(
    own: Prediction, reference: Prediction, sizes: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """The largest shift of the mean of a function of the label, in its sds [n]: the root of chi square, about both laws' middle."""
    ours, theirs = own.probabilities, reference.probabilities
    middle = (0.5 * (ours + theirs)).clamp_min(torch.finfo(ours.dtype).tiny)
    variance = sum(
        (
            univariate.probabilities(p.distribution).var(0, correction=0) / size
            for p, size in zip((own, reference), sizes, strict=True)
        ),
        torch.zeros_like(middle),
    )
    return ((ours - theirs).square() / middle).sum(-1).sqrt(), (variance / middle).sum(-1).sqrt()


def _contents(
    own: Prediction, reference: Prediction, level: float, sizes: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor]:
    """What the reference's law and its own hold in its sets [n], and the error of the difference."""
    if own.kind == "classes":
        p, order = own.probabilities.sort(-1, descending=True)
        kept = torch.zeros_like(p).scatter(-1, order, (p.cumsum(-1) - p < level).to(p))
        masses = [
            (univariate.probabilities(each.distribution) * kept).sum(-1)
            for each in (own, reference)
        ]
    else:
        lower, upper = own.interval(level)
        below = (
            lower - own.scale if own.kind == "count" else lower
        )  # counts: the lower end belongs to the interval
        masses = [each.cdf_by_draw(upper) - each.cdf_by_draw(below) for each in (own, reference)]
    error = sum(
        (m.var(0, correction=0) / size for m, size in zip(masses, sizes, strict=True)),
        torch.zeros(()),
    ).sqrt()
    return masses[1].mean(0), masses[0].mean(0), error
