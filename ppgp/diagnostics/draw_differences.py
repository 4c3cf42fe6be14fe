"""Differences between the draws of two posteriors: of each scalar, and of the log density."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import ks_2samp
from torch import Tensor

from ..posterior import convergence
from ..posterior.posterior import Posterior
from .choice_of_reference import comparable
from .differences import Difference, LogDensity
from .scalar_samples import Sample


def of_scalars(own: Sample, reference: Sample) -> list[Difference]:
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
        kolmogorov=float(np.asarray(ks_2samp(x, y, method="asymp"))[0]),
        wasserstein=convergence.wasserstein(x, y) / sd,
        size=size,
        roughness=_roughness(y, sd),
    )


def _roughness(y: np.ndarray, sd: float) -> float:
    """Return the mean of the integral of |B(F)|, in sds.

    B is a Brownian bridge, and F the empirical distribution function of y (sorted).
    """
    share = np.arange(1, y.size) / y.size
    return math.sqrt(2 / math.pi) * float(np.sqrt(share * (1 - share)) @ np.diff(y)) / sd


def of_log_density(posterior: Posterior, standard: Posterior, scalars: int) -> list[LogDensity]:
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
