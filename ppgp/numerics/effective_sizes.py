"""R-hat, effective sample sizes and Monte Carlo errors of draws of Markov chains.

They equal those of ArviZ, which takes a second to import, along with Matplotlib and xarray, where
these take some milliseconds for all scalars of a fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import ndtri

FEWEST = 4  # draws per chain, for R-hat and effective sample sizes to exist
TAILS = (0.05, 0.95)  # quantiles whose effective sample sizes count as those of the tails
AT_ONCE = 2**21  # numbers of draws whose autocovariances are computed at once


def effective_sizes(x: np.ndarray, method: str) -> np.ndarray:
    """Return the effective sample size of every scalar.

    It is computed from the autocovariances of split chains, summed as long as the sums of pairs of
    them are positive and do not rise (Geyer 1992). Vehtari et al. (2021), sections 3 and 4.

    Args:
        x: Draws [chain, draw, *event].
        method: "bulk" (of rank-normalised draws), "tail" (the smaller of those of the 5 and 95 %
            quantiles), "median", "mean" or "sd".

    Returns:
        Sizes [*event]: the number of draws for a constant scalar; NaN for a scalar with a draw that
        is not finite, and for all if a chain has fewer than four draws.
    """

    def sizes(x: np.ndarray) -> np.ndarray:
        if method == "bulk":
            return _sizes(_rank_normalised(_split(x)))
        if method == "mean":
            return _sizes(_split(x))
        if method == "sd":
            return _sizes(_split(np.square(x - x.mean((1, 2), keepdims=True))))
        shares = TAILS if method == "tail" else (0.5,)
        return np.min([_sizes(_split(_at_most_quantile(x, share))) for share in shares], axis=0)

    return _of_each_scalar(x, sizes)


def r_hats(x: np.ndarray) -> np.ndarray:
    """Return the rank-normalised split R-hat of every scalar.

    It is the larger of those of the draws and of their distances from the median. Vehtari et al.
    (2021), section 4.

    Args:
        x: Draws [chain, draw, *event], of two chains or more.

    Returns:
        R-hats [*event]: NaN for a constant scalar, for one with a draw that is not finite, and for
        all if a chain has fewer than four draws.
    """

    def of_scalars(x: np.ndarray) -> np.ndarray:
        halves = _split(x)
        folded = np.abs(halves - np.median(halves, axis=(1, 2), keepdims=True))
        return np.fmax(_r_hat(_rank_normalised(halves)), _r_hat(_rank_normalised(folded)))

    return _of_each_scalar(x, of_scalars)


def errors_of_means(x: np.ndarray) -> np.ndarray:
    """Return the Monte Carlo standard error of the mean of every scalar, sd / sqrt(n).

    n is the effective sample size of the mean; Vehtari et al. (2021), section 4.

    Args:
        x: Draws [chain, draw, *event].

    Returns:
        Errors [*event], in the units of the draws.
    """
    return np.asarray(x.std((0, 1), ddof=1) / np.sqrt(effective_sizes(x, "mean")))


def errors_of_sds(x: np.ndarray) -> np.ndarray:
    """Return the Monte Carlo standard error of the sd of every scalar.

    It is the error of the variance, a mean of squares, by the delta method.

    Args:
        x: Draws [chain, draw, *event].

    Returns:
        Errors [*event], in the units of the draws.
    """
    squares = np.square(x - x.mean((0, 1)))
    variance = squares.mean((0, 1))
    of_squares = np.square(squares).mean((0, 1)) - variance**2
    return np.asarray(np.sqrt(of_squares / effective_sizes(squares, "mean") / variance / 4))


def _of_each_scalar(x: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return a statistic of draws [chain, draw, *event] as [*event].

    Args:
        x: The draws.
        statistic: A function of draws [scalar, chain, draw] that returns [scalar].
    """
    chains, draws, *event = x.shape
    flat = np.moveaxis(np.asarray(x, float).reshape(chains, draws, -1), 2, 0)
    found = np.full(len(flat), np.nan)
    finite = np.flatnonzero(np.isfinite(flat).all((1, 2)))
    if draws >= FEWEST and finite.size:
        parts = math.ceil(finite.size * chains * draws / AT_ONCE)
        for some in np.array_split(finite, parts):
            found[some] = statistic(flat[some])
    return found.reshape(event)


def _split(x: np.ndarray) -> np.ndarray:
    """Return the halves of all chains, [scalar, 2 chain, draw // 2]; an odd middle is left out."""
    half = x.shape[2] // 2
    return np.concatenate((x[..., :half], x[..., -half:]), axis=1)


def _rank_normalised(x: np.ndarray) -> np.ndarray:
    """Return normal scores of the ranks among all draws of a scalar; ties have their mean rank."""
    normal = np.empty(x.shape)
    for scalar, draws in enumerate(x):
        ordered = np.sort(draws, axis=None)
        below = np.searchsorted(ordered, draws, "left")
        up_to = np.searchsorted(ordered, draws, "right")
        rank = (below + up_to + 1) / 2
        normal[scalar] = ndtri((rank - 3 / 8) / (draws.size + 1 / 4))  # Blom (1958)
    return normal


def _at_most_quantile(x: np.ndarray, share: float) -> np.ndarray:
    """Return whether each draw is at most the quantile of its scalar, as 0.0 or 1.0."""
    quantile = np.quantile(x, share, axis=(1, 2), keepdims=True)
    return (x <= quantile).astype(float)


def _r_hat(x: np.ndarray) -> np.ndarray:
    """Return R-hat [scalar] of draws [scalar, chain, draw]."""
    n = x.shape[2]
    between = n * x.mean(2).var(1, ddof=1)
    within = x.var(2, ddof=1).mean(1)
    with np.errstate(divide="ignore", invalid="ignore"):  # constant draws have no variance
        return np.sqrt((between / within + n - 1) / n)


def _sizes(x: np.ndarray) -> np.ndarray:
    """Return the effective sizes [scalar] of draws [scalar, chain, draw]."""
    scalars, chains, n = x.shape
    covariance = _mean_autocovariances(x)
    within = covariance[:, :1] * n / (n - 1)
    total = covariance[:, :1]
    if chains > 1:
        total = total + x.mean(2).var(1, ddof=1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):  # constant draws have no variance
        correlation = 1 - (within - covariance) / total
    correlation[:, 0] = 1.0
    pairs = correlation[:, : n - n % 2].reshape(scalars, -1, 2)
    pairs = pairs[:, : max(1, (n - 1) // 2)]  # the last lags have too few products
    sums = pairs.sum(2)
    # the first pair whose sum is not positive ends the sum, with its even lag counted once
    ends = sums <= 0
    ends[:, -1] = True
    last = ends.argmax(1)
    each = np.arange(scalars)
    even = pairs[each, last, 0]
    even = np.where(sums[each, last] < 0, np.fmax(even, 0.0), even)
    before = np.arange(sums.shape[1]) < last[:, None]
    falling = np.minimum.accumulate(sums, axis=1)
    time = 2 * np.where(before, falling, 0.0).sum(1) + even - 1
    number = chains * n
    sizes = number / np.fmax(time, 1 / np.log10(number))
    return np.where(np.ptp(x, axis=(1, 2)) == 0, number, sizes)


def _mean_autocovariances(x: np.ndarray) -> np.ndarray:
    """Return the autocovariances [scalar, lag], averaged over chains, of [scalar, chain, draw]."""
    n = x.shape[2]
    length = next_fast_len(2 * n, real=True)
    spectrum = np.fft.rfft(x - x.mean(2, keepdims=True), length, axis=2)
    power = (np.square(spectrum.real) + np.square(spectrum.imag)).mean(1)
    return np.fft.irfft(power, length, axis=1)[:, :n] / n
