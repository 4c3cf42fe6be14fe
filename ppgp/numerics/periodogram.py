"""The periodogram of values at any places, of what is left after a trend."""

from __future__ import annotations

import math

import numpy as np
from scipy import fft

OVERSAMPLING = 6  # frequencies per 1 / span; a peak is about 1 / span wide
LEAST_ROWS = 6  # fewer are fitted by any wave and a trend
MOST_FREQUENCIES = 1_000_000  # beyond them, short periods are left out
FEW_NUMBERS = 100_000  # rows times frequencies; with more, sums over rows are found by FFT
REFINED = 2  # points of the grid of the FFT for each frequency and its negative
NEIGHBOURS = 12  # points of the grid on each side to which a row is spread: 12 digits


def strongest_periods(
    x: np.ndarray, y: np.ndarray, most: int, others: np.ndarray | None = None
) -> np.ndarray:
    """Return the periods at the highest peaks of the periodogram, the highest first.

    The power at a frequency is the share of the squares of y that a wave of it explains beside a
    straight line in x, which is fitted anew at each frequency: the periodogram of Lomb (1976) and
    Scargle (1982), with the floating mean of Zechmeister & Kurster (2009) and a slope. Frequencies
    go up to one wave in two rows on average, and up to 1 / (2 step) where x has one step. Sums of
    many rows are found by FFT, as in Press & Rybicki (1989): O(n log n) in all, a second for
    100,000 rows.

    Args:
        x: Places [n], in any order, which need not be equally far apart.
        y: Values [n].
        most: How many periods are wanted at most.
        others: Columns [n, k] whose straight lines belong to the trend too; None: there are none.

    Returns:
        The periods [at most ``most``], in the unit of x; none if there are fewer than 6 places, or
        y is a straight line.

    Examples:
        >>> import numpy as np
        >>> x = np.arange(60.0)
        >>> strongest_periods(x, 0.1 * x + np.sin(2 * np.pi * x / 7.0), most=1).round(1)
        array([7.])
    """
    places = np.unique(x)
    if len(places) < LEAST_ROWS or not np.isfinite(y).all():
        return np.empty(0)
    span = places[-1] - places[0]
    frequencies = _frequencies(places, span)
    power = _explained(x - places[0], y, frequencies, others)
    before = np.concatenate([[-np.inf], power[:-1]])
    after = np.concatenate([power[1:], [-np.inf]])
    peaks = np.flatnonzero((power > before) & (power >= after) & (power > 0))
    highest = peaks[np.argsort(-power[peaks], kind="stable")][:most]
    return 1.0 / frequencies[highest]


def _frequencies(places: np.ndarray, span: float) -> np.ndarray:
    """Return the frequencies of a periodogram, [f], in 1 / the unit of the places."""
    steps = np.diff(places)
    regular = steps.max() - steps.min() <= 1e-6 * span
    highest = 0.5 * len(places) / span
    if regular:
        highest = 0.5 / steps.mean()
    count = min(math.ceil(OVERSAMPLING * span * highest), MOST_FREQUENCIES)
    step = 1.0 / (OVERSAMPLING * span)
    # half a wave over the whole span is what a trend can be
    first = OVERSAMPLING // 2
    return step * np.arange(first, max(count, first) + 1)


def _explained(
    x: np.ndarray, y: np.ndarray, frequencies: np.ndarray, others: np.ndarray | None
) -> np.ndarray:
    """Return the squares that a wave explains beside the trend, as a share, [f]."""
    trend = [np.ones_like(x), x, *(() if others is None else others.T)]
    columns = np.stack(trend, 1)
    columns = columns / np.maximum(np.abs(columns).max(0), 1e-300)
    Q, R = np.linalg.qr(columns)
    sizes = np.abs(np.diagonal(R))
    Q = Q[:, sizes > 1e-9 * sizes.max()]
    rest = y - Q @ (Q.T @ y)
    total = float(rest @ rest)
    if not total > 1e-20 * float(y @ y):
        return np.zeros_like(frequencies)
    if len(x) * len(frequencies) <= FEW_NUMBERS:
        wave, double = (np.exp(2j * np.pi * np.outer(k * frequencies, x)) for k in (1, 2))
        of_rows, of_doubles = wave @ np.column_stack([rest, Q]), double.sum(1)
    else:
        of_rows = np.stack([_sums(x, w, frequencies) for w in (rest, *Q.T)], 1)
        of_doubles = _sums(x, np.ones_like(x), 2 * frequencies)
    c, s, double_c, double_s = *_parts(of_rows), *_parts(of_doubles)
    yc, ys, trend_c, trend_s = c[:, 0], s[:, 0], c[:, 1:], s[:, 1:]
    cc = 0.5 * (len(x) + double_c) - (trend_c**2).sum(1)
    ss = 0.5 * (len(x) - double_c) - (trend_s**2).sum(1)
    cs = 0.5 * double_s - (trend_c * trend_s).sum(1)
    determinant = cc * ss - cs**2
    # a wave that the trend explains, or one that is 0 at all rows, explains nothing more
    usable = determinant > 1e-6 * np.maximum(cc, ss) ** 2
    one = np.maximum(cc, ss)
    two_waves = (yc**2 * ss + ys**2 * cc - 2 * yc * ys * cs) / np.where(usable, determinant, 1.0)
    one_wave = np.maximum(yc**2, ys**2) / np.maximum(one, 1e-300)
    explained = np.where(usable, two_waves, one_wave)
    return np.where(one > 1e-9 * len(x), explained, 0.0) / total


def _parts(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of cosines and those of sines."""
    return np.real(sums), np.imag(sums)


def _sums(x: np.ndarray, weights: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Return the sums of weights times exp(2 pi i f x) over rows, [f], by FFT.

    Each row is spread over a grid by a Gaussian, whose transform is divided out: Greengard & Lee
    (2004), section 3.

    Args:
        x: Places [n], none below 0.
        weights: [n].
        frequencies: Multiples of one step, each the next one.
    """
    step = (frequencies[-1] - frequencies[0]) / max(1, len(frequencies) - 1)
    first = round(frequencies[0] / step)
    modes = 2 * (first + len(frequencies))
    size = 2 ** math.ceil(math.log2(REFINED * modes))
    ratio = size / modes
    tau = np.pi * NEIGHBOURS / (modes**2 * ratio * (ratio - 0.5))
    turn = np.mod(x * step, 1.0)
    nearest = np.floor(turn * size).astype(np.int64)
    grid = np.zeros(size)
    for offset in range(1 - NEIGHBOURS, NEIGHBOURS + 1):
        point = nearest + offset
        distance = 2 * np.pi * (turn - point / size)
        spread = weights * np.exp(-(distance**2) / (4 * tau))
        grid += np.bincount(np.mod(point, size), spread, minlength=size)
    k = np.arange(first, first + len(frequencies))
    transform = fft.rfft(grid)[k].conj() / size
    return np.sqrt(np.pi / tau) * np.exp(tau * k.astype(float) ** 2) * transform
