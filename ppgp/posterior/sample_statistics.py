"""Importance weights, and distances between samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy
from scipy.special import boxcox, logsumexp, softmax

from ..data.entries.arrays import as_tensor
from ..errors import DataError

__all__ = ["k_hat_limit", "numbers", "psis", "wasserstein"]

FEWEST_IN_TAIL = 5  # draws, to fit a generalised Pareto distribution
PRIOR_SHAPE = 0.5  # of a generalised Pareto distribution, Vehtari et al. (2024)
PRIOR_DRAWS = 10  # that the prior of the shape counts for


def numbers(values: Any, what: str) -> np.ndarray:
    """Return an array, a list or a tensor as an array in float64."""
    return as_tensor(values, what).double().cpu().numpy()


def psis(log_ratio: Any) -> tuple[np.ndarray, Any]:
    """Return Pareto-smoothed importance weights and the Pareto shape k-hat.

    The largest weights are replaced by quantiles of a generalised Pareto distribution fitted to
    them. Its shape k-hat says how heavy the tail of the weights is: above ``k_hat_limit`` they are
    unreliable. Vehtari, Simpson, Gelman, Yao & Gabry (2024).

    Args:
        log_ratio: Log importance ratios [..., draw], in nats, up to a constant.

    Returns:
        Normalised log weights [..., draw], whose exponentials sum to 1, and k-hat [...] without a
        unit (a float for one set of ratios; inf for too few draws to fit a tail).

    Raises:
        DataError: If there are no ratios.

    Examples:
        Draws of N(0, s^2) with s = 0.5 for the target N(0, 1) have weights with k = 1 - s^2 = 0.75:

        >>> import numpy as np
        >>> from ppgp import diagnostics
        >>> x = 0.5 * np.random.default_rng(0).normal(size=4000)
        >>> log_weights, k = diagnostics.psis(-(x**2) / 2 + x**2 / (2 * 0.5**2))
        >>> round(float(np.exp(log_weights).sum()), 6)
        1.0
        >>> bool(abs(k - 0.75) < 0.15)
        True
    """
    ratios = numbers(log_ratio, "log importance ratios")
    if not ratios.size:
        got = f"shape {list(ratios.shape)}"
        raise DataError("log importance ratios [..., draw]", got, "pass at least one")
    rows = ratios.reshape(-1, ratios.shape[-1])
    with np.errstate(invalid="ignore"):  # infinite ratios have weights of NaN
        found = [_smoothed(row) for row in rows]
    log_weights = np.stack([each for each, _ in found]).reshape(ratios.shape)
    shapes = np.array([k for _, k in found]).reshape(ratios.shape[:-1])
    return log_weights, float(shapes) if shapes.ndim == 0 else shapes


def _smoothed(log_ratio: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the smoothed and normalised log weights [draw] of one set of ratios, and k-hat.

    The tail has min(S / 5, 3 sqrt(S)) of S draws, rounded up as in ArviZ 0.x and the R package loo.
    ArviZ 1.x rounds down, and returns NaN where many draws are equal, as after rejections.
    """
    x = log_ratio - log_ratio.max()
    tail = math.ceil(min(x.size / 5, 3 * math.sqrt(x.size)))
    k = math.inf
    if tail >= FEWEST_IN_TAIL:
        cutoff = max(np.partition(x, -tail - 1)[-tail - 1], math.log(np.finfo(float).tiny))
        above = np.flatnonzero(x > cutoff)
        if above.size >= FEWEST_IN_TAIL:
            above = above[np.argsort(x[above])]
            k, scale = _pareto_fit(np.exp(x[above]) - math.exp(cutoff))
            p = (np.arange(above.size) + 0.5) / above.size
            quantiles = scale * boxcox(1 / (1 - p), k)  # (1 - p)^-k / k - 1 / k, also for k = 0
            x[above] = np.minimum(np.log(quantiles + math.exp(cutoff)), 0.0)
    return x - logsumexp(x), k


def _pareto_fit(x: np.ndarray) -> tuple[float, float]:
    """Return the shape and the scale of a generalised Pareto distribution of values above 0.

    Zhang & Stephens (2009), with the prior of the shape of Vehtari et al. (2024), appendix C.

    Args:
        x: The values [n], in ascending order.
    """
    n = x.size
    points = 30 + int(math.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    b = (1 - np.sqrt(points / (np.arange(points) + 0.5))) / (3 * quartile) + 1 / x[-1]
    shapes = np.log1p(-b[:, None] * x).mean(1)
    weights = softmax(n * (np.log(-b / shapes) - shapes - 1))
    weights[weights < 10 * np.finfo(float).eps] = 0.0  # of the largest b, by far
    mean = float(b @ weights / weights.sum())
    shape = float(np.log1p(-mean * x).mean())
    return (n * shape + PRIOR_DRAWS * PRIOR_SHAPE) / (n + PRIOR_DRAWS), -shape / mean


def k_hat_limit(draws: int) -> float:
    """Return the k-hat above which weights are unreliable: min(1 - 1 / log10 S, 0.7).

    S is the number of draws; fewer than 11 count as 11. Vehtari, Simpson, Gelman, Yao & Gabry
    (2024).

    Args:
        draws: The number of draws.

    Returns:
        The limit of the Pareto shape that ``psis`` returns, without a unit.

    Examples:
        >>> from ppgp import diagnostics
        >>> diagnostics.k_hat_limit(100)
        0.5
        >>> diagnostics.k_hat_limit(4000)
        0.7
    """
    return min(1 - 1 / math.log10(max(draws, 11)), 0.7)


def wasserstein(a: Any, b: Any) -> float:
    """Return the Wasserstein-1 distance between two samples of one scalar.

    It is the area between their empirical distribution functions (Vallender 1974). The samples may
    differ in size.

    Args:
        a: A sample [...], of any shape; its entries count alike.
        b: The other sample [...].

    Returns:
        The distance, in the units of the samples; NaN if one holds NaN.

    Raises:
        DataError: If a sample is empty.

    Examples:
        >>> from ppgp import diagnostics
        >>> diagnostics.wasserstein([0.0, 1.0, 2.0], [5.0, 6.0, 7.0])
        5.0
        >>> diagnostics.wasserstein([0.0, 4.0], [2.0])
        2.0
    """
    both = [numbers(sample, "a sample").ravel() for sample in (a, b)]
    if not all(sample.size for sample in both):
        raise DataError("two samples", "an empty one", "pass at least one number in each")
    return float(scipy.stats.wasserstein_distance(*both))
