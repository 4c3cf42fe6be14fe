"""The judgement of one posterior by the draws of another of the same model.

The posteriors are compared scalar by scalar, in projections of all scalars, and in the log density
of their draws.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from torch import Tensor

from ..posterior import convergence, sample_statistics
from ..posterior.posterior import Posterior
from .choice_of_reference import Side, comparable
from .differences import Difference, LogDensity, worst
from .scalar_samples import Sample, projected
from .verdicts import REJECTED, UNJUDGED, Verdict

__all__ = ["judge"]


def judge(own: Side, reference: Side) -> Verdict:
    """Judge one posterior by the draws of another.

    Args:
        own: The posterior that is judged.
        reference: A posterior with the same sites, whose draws are taken as true.
    """
    if not own.finite:
        return Verdict(REJECTED, "its draws are not finite")
    missing = own.missing(reference)
    if own.sample.short or reference.sample.short or not reference.finite:
        return Verdict(UNJUDGED, missing)
    verdict = _compared(own.posterior, reference.posterior, own.sample, reference.sample)
    if missing:
        return verdict.unjudged(missing)
    if reference.posterior.warnings and verdict.word != REJECTED:
        reason = f"{verdict.reason} (the reference has warnings of its own)"
        return replace(verdict, reason=reason)
    return verdict


def _compared(posterior: Posterior, standard: Posterior, own: Sample, reference: Sample) -> Verdict:
    """Return the verdict from all differences, ``standard`` being the reference's posterior."""
    ranges = np.ptp(reference.in_order, axis=0)
    moving = [name for name, width in zip(reference.names, ranges, strict=True) if width > 0]
    if not moving:
        return Verdict(UNJUDGED, "nothing varies in the reference draws")
    own = own.named_by(posterior, standard).among(moving)
    reference = reference.among(moving)
    differences = _of_scalars(own, reference)
    joint: list[Difference | LogDensity] = []
    for pair in projected(own, reference):
        joint += _of_scalars(*pair)
    if not own.point:
        joint += _of_log_density(posterior, standard, len(moving))
    comparisons = sum(d.comparisons for d in [*differences, *joint])
    scalars = []
    for j, difference in enumerate(differences):
        row = _row(difference, own, reference, j)
        row["ess_per_second"] = math.nan
        if not own.point:
            row["ess_per_second"] = float(own.size[j]) / max(posterior.seconds, 1e-9)
        scalars.append(row | {"verdict": difference.judged(comparisons)[0]})
    directions = [_joint_row(d) | {"verdict": d.judged(comparisons)[0]} for d in joint]
    word, reason = worst(differences, joint)
    return Verdict(word, reason, scalars, directions)


def _row(difference: Difference, own: Sample, reference: Sample, j: int) -> dict[str, Any]:
    """Return the numbers of the j-th scalar; a point lies wholly on one side of a quantile."""
    tails, wasserstein = difference.tails, difference.wasserstein
    if tails is None:
        low, high = np.quantile(reference.in_order[:, j], [0.05, 0.95])
        tails = float(own.mean[j] < low), float(own.mean[j] > high)
    if wasserstein is None:
        wasserstein = float(np.abs(reference.in_order[:, j] - own.mean[j]).mean() / reference.sd[j])
    return {
        "site": difference.site,
        "mean": float(own.mean[j]),
        "reference_mean": float(reference.mean[j]),
        "difference": difference.shift,
        "difference_error": difference.shift_error,
        "ratio": _or(difference.ratio, 0.0),
        "ratio_error": difference.ratio_error,
        "tail_5": tails[0],
        "tail_95": tails[1],
        "tail_error": difference.tail_error,
        "kolmogorov": _or(difference.kolmogorov, math.nan),
        "wasserstein": wasserstein,
    }


def _joint_row(difference: Difference | LogDensity) -> dict[str, Any]:
    """Return the numbers of a projection or of the log density."""
    if isinstance(difference, LogDensity):
        return {
            "what": "log density (nats)",
            "difference": difference.gap,
            "difference_error": difference.error,
        }
    return {
        "what": difference.site,
        "difference": difference.shift,
        "difference_error": difference.shift_error,
        "ratio": _or(difference.ratio, 0.0),
        "ratio_error": difference.ratio_error,
        "kolmogorov": _or(difference.kolmogorov, math.nan),
        "wasserstein": _or(difference.wasserstein, math.nan),
    }


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _of_scalars(own: Sample, reference: Sample) -> list[Difference]:
    """Return the difference of each scalar, in sds of the reference."""
    if own.point:
        shifts = (own.mean - reference.mean) / reference.sd
        errors = reference.mean_error / reference.sd
        each = zip(reference.names, shifts.tolist(), errors.tolist(), strict=True)
        return [Difference(name, shift, error, None, 0.0) for name, shift, error in each]
    sd_error = own.sd_error_if(reference)
    return [_of_scalar(own, reference, j, float(sd_error[j])) for j in range(len(reference.names))]


def _of_scalar(own: Sample, reference: Sample, j: int, sd_error: float) -> Difference:
    """Return the difference of the j-th scalar of two samples."""
    sd = float(reference.sd[j])
    size = 1 / (1 / max(float(own.size[j]), 1.0) + 1 / max(float(reference.size[j]), 1.0))
    x, y = own.in_order[:, j], reference.in_order[:, j]
    low, high = np.quantile(y, [0.05, 0.95])
    return Difference(
        site=reference.names[j],
        shift=float(own.mean[j] - reference.mean[j]) / sd,
        shift_error=math.hypot(own.mean_error[j], reference.mean_error[j]) / sd,
        ratio=float(own.sd[j]) / sd,
        ratio_error=math.hypot(sd_error, reference.sd_error[j]) / sd,
        tails=(float((x < low).mean()), float((x > high).mean())),
        tail_error=math.sqrt(0.05 * 0.95 / size),
        kolmogorov=float(np.asarray(scipy.stats.ks_2samp(x, y, method="asymp"))[0]),
        wasserstein=sample_statistics.wasserstein(x, y) / sd,
        size=size,
        roughness=_roughness(y, sd),
    )


def _roughness(y: np.ndarray, sd: float) -> float:
    """Return the mean of the integral of |B(F)|, in sds.

    B is a Brownian bridge, and F the empirical distribution function of y (sorted).
    """
    share = np.arange(1, y.size) / y.size
    return math.sqrt(2 / math.pi) * float(np.sqrt(share * (1 - share)) @ np.diff(y)) / sd


def _of_log_density(posterior: Posterior, standard: Posterior, scalars: int) -> list[LogDensity]:
    """Return the difference of the mean log densities.

    The result is [] where either posterior did not record it at each draw, or the two densities are
    not the same.
    """
    both = []
    for each in (posterior, standard):
        log_density = _recorded(each)
        if log_density is None:
            return []
        both.append(log_density)
    own, reference = both
    if not np.isfinite(reference).all() or not comparable(posterior, standard):
        return []
    if not np.isfinite(own).all():
        return [LogDensity(-math.inf, 0.0, scalars)]
    error = math.hypot(
        convergence.mcse(own, "mean", not posterior.mcmc),
        convergence.mcse(reference, "mean", not standard.mcmc),
    )
    return [LogDensity(float(own.mean() - reference.mean()), error, scalars)]


def _recorded(posterior: Posterior) -> np.ndarray | None:
    """Return the log density of each draw [chain, draw]; None where it was not recorded."""
    lp = posterior.stats.get("lp")
    if not isinstance(lp, Tensor) or convergence.on_mini_batches(posterior):
        return None
    if lp.shape != next(iter(posterior.draws.values())).shape[:2]:
        return None
    return lp.detach().double().cpu().numpy()
