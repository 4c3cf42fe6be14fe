"""What differs between two posteriors of one model: scalar by scalar, in projections, and in the log density of their draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import ks_2samp
from torch import Tensor

from ..posterior import convergence
from ..posterior.posterior import Posterior
from .references import Side, comparable
from .samples import Sample, projected
from .verdicts import REJECTED, UNJUDGED, Difference, LogDensity, worst

__all__ = ["Found", "judge"]


@dataclass(frozen=True)
class Found:
    """Every difference between a posterior and its reference.

    Attributes:
        scalars: one row a scalar that varies in the reference.
        joint: one row a projection, and one for the log density.
        word, reason: the verdict, and the figure that says so.
    """

    word: str
    reason: str
    scalars: list[dict[str, Any]] = field(default_factory=list)
    joint: list[dict[str, Any]] = field(default_factory=list)

    def unjudged(self, missing: str) -> Found:
        """The figures without their verdicts."""
        rows = (
            [{**row, "verdict": UNJUDGED} for row in part] for part in (self.scalars, self.joint)
        )
        return Found(UNJUDGED, missing, *rows)


def judge(own: Side, standard: Side) -> Found:
    """One posterior by the draws of another, of the same sites."""
    if not own.finite:
        return Found(REJECTED, "its draws are not finite")
    missing = own.missing(standard)
    if own.sample.short or standard.sample.short or not standard.finite:
        return Found(UNJUDGED, missing)
    judged = _found(own.posterior, standard.posterior, own.sample, standard.sample)
    if missing:
        return judged.unjudged(missing)
    if standard.posterior.warnings and judged.word != REJECTED:
        return replace(judged, reason=f"{judged.reason} (the reference has warnings of its own)")
    return judged


def _found(posterior: Posterior, standard: Posterior, own: Sample, reference: Sample) -> Found:
    moving = [
        name
        for name, spread in zip(reference.names, np.ptp(reference.in_order, axis=0), strict=True)
        if spread > 0
    ]
    if not moving:
        return Found(UNJUDGED, "nothing varies in the reference draws")
    own, reference = own.among(moving), reference.among(moving)
    differences = _each(own, reference)
    joint: list[Difference | LogDensity] = [
        d for pair in projected(own, reference) for d in _each(*pair)
    ]
    joint += [] if own.point else _log_density(posterior, standard, len(moving))
    figures = sum(d.figures for d in [*differences, *joint])
    scalars = [
        _row(d, own, reference, j, posterior, d.judged(figures)[0])
        for j, d in enumerate(differences)
    ]
    return Found(
        *worst(differences, joint), scalars, [_joint_row(d, d.judged(figures)[0]) for d in joint]
    )


def _each(own: Sample, reference: Sample) -> list[Difference]:
    """Each scalar, differences in sds of the reference."""
    out = []
    sd_error = reference.sd_error if own.point else own.sd_error_if(reference)
    for j, name in enumerate(reference.names):
        sd = float(reference.sd[j])
        shift = float(own.mean[j] - reference.mean[j]) / sd
        if own.point:
            out.append(Difference(name, shift, float(reference.mean_error[j]) / sd, None, 0.0))
            continue
        size = 1 / (1 / max(float(own.size[j]), 1.0) + 1 / max(float(reference.size[j]), 1.0))
        x, y = own.in_order[:, j], reference.in_order[:, j]
        low, high = np.quantile(y, [0.05, 0.95])
        out.append(
            Difference(
                name,
                shift,
                math.hypot(own.mean_error[j], reference.mean_error[j]) / sd,
                float(own.sd[j]) / sd,
                math.hypot(sd_error[j], reference.sd_error[j]) / sd,
                (float((x < low).mean()), float((x > high).mean())),
                math.sqrt(0.05 * 0.95 / size),
                float(np.asarray(ks_2samp(x, y, method="asymp"))[0]),
                convergence.wasserstein(x, y) / sd,
                size,
                _roughness(y, sd),
            )
        )
    return out


def _roughness(y: np.ndarray, sd: float) -> float:
    """The mean of the integral of |B(F)|, B a Brownian bridge and F the law of y (sorted), in sds."""
    share = np.arange(1, y.size) / y.size
    return math.sqrt(2 / math.pi) * float(np.sqrt(share * (1 - share)) @ np.diff(y)) / sd


def _log_density(posterior: Posterior, standard: Posterior, scalars: int) -> list[LogDensity]:
    """Where both have recorded it at each draw, and it is that of one density; else []."""
    both = []
    for each in (posterior, standard):
        lp = each.stats.get("lp")
        noisy = convergence.on_mini_batches(each)
        if (
            not isinstance(lp, Tensor)
            or lp.shape != next(iter(each.draws.values())).shape[:2]
            or noisy
        ):
            return []
        both.append(lp.detach().double().cpu().numpy())
    if not np.isfinite(both[1]).all() or not comparable(posterior, standard):
        return []
    if not np.isfinite(both[0]).all():
        return [LogDensity(-math.inf, 0.0, scalars)]
    errors = (
        convergence.mcse(lp, "mean", not p.mcmc)
        for lp, p in zip(both, (posterior, standard), strict=True)
    )
    return [LogDensity(float(both[0].mean() - both[1].mean()), math.hypot(*errors), scalars)]


def _row(
    d: Difference, own: Sample, reference: Sample, j: int, posterior: Posterior, word: str
) -> dict[str, Any]:
    tails = d.tails
    if tails is None:
        low, high = np.quantile(reference.in_order[:, j], [0.05, 0.95])
        tails = float(own.mean[j] < low), float(own.mean[j] > high)
    wasserstein = d.wasserstein
    if wasserstein is None:
        wasserstein = float(np.abs(reference.in_order[:, j] - own.mean[j]).mean() / reference.sd[j])
    return {
        "site": d.site,
        "mean": float(own.mean[j]),
        "reference_mean": float(reference.mean[j]),
        "difference": d.shift,
        "difference_error": d.shift_error,
        "ratio": 0.0 if d.ratio is None else d.ratio,
        "ratio_error": d.ratio_error,
        "tail_5": tails[0],
        "tail_95": tails[1],
        "tail_error": d.tail_error,
        "kolmogorov": math.nan if d.kolmogorov is None else d.kolmogorov,
        "wasserstein": wasserstein,
        "ess_per_second": math.nan
        if own.point
        else float(own.size[j]) / max(posterior.seconds, 1e-9),
        "verdict": word,
    }


def _joint_row(d: Difference | LogDensity, word: str) -> dict[str, Any]:
    if isinstance(d, LogDensity):
        return {
            "what": "log density (nats)",
            "difference": d.gap,
            "difference_error": d.error,
            "verdict": word,
        }
    return {
        "what": d.site,
        "difference": d.shift,
        "difference_error": d.shift_error,
        "ratio": 0.0 if d.ratio is None else d.ratio,
        "ratio_error": d.ratio_error,
        "kolmogorov": math.nan if d.kolmogorov is None else d.kolmogorov,
        "wasserstein": math.nan if d.wasserstein is None else d.wasserstein,
        "verdict": word,
    }
