"""The periodogram of values at any places, of what is left after a trend."""

from __future__ import annotations

import math

import numpy as np

OVERSAMPLING = 6  # frequencies per 1 / span; a peak is about 1 / span wide
LEAST_ROWS = 6  # fewer are fitted by any wave and a trend
MOST_NUMBERS = 4_000_000  # rows times frequencies; beyond them some rows are left out


def strongest_periods(
    x: np.ndarray, y: np.ndarray, most: int, others: np.ndarray | None = None
) -> np.ndarray:
    """Return the periods at the highest peaks of the periodogram, the highest first.

    The power at a frequency is the share of the squares of y that a wave of it explains beside a
    straight line in x, which is fitted anew at each frequency: the periodogram of Lomb (1976) and
    Scargle (1982), with the floating mean of Zechmeister & Kurster (2009) and a slope. Frequencies
    go up to one wave in two rows on average, and up to 1 / (2 step) where x has one step.

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
    rows = max(LEAST_ROWS, MOST_NUMBERS // len(frequencies))
    if len(x) > rows:  # at random: rows at equal distances would hide short periods
        chosen = np.random.default_rng(0).permutation(len(x))[:rows]
        x, y = x[chosen], y[chosen]
        others = None if others is None else others[chosen]
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
    count = min(math.ceil(OVERSAMPLING * span * highest), MOST_NUMBERS // LEAST_ROWS)
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
    angle = 2 * np.pi * np.outer(x, frequencies)
    c, s = np.cos(angle), np.sin(angle)
    c, s = c - Q @ (Q.T @ c), s - Q @ (Q.T @ s)
    cc, ss, cs = (np.einsum("nf,nf->f", a, b) for a, b in ((c, c), (s, s), (c, s)))
    yc, ys = rest @ c, rest @ s
    determinant = cc * ss - cs**2
    # a wave that the trend explains, or one that is 0 at all rows, explains nothing more
    usable = determinant > 1e-6 * np.maximum(cc, ss) ** 2
    one = np.maximum(cc, ss)
    two_waves = (yc**2 * ss + ys**2 * cc - 2 * yc * ys * cs) / np.where(usable, determinant, 1.0)
    one_wave = np.maximum(yc**2, ys**2) / np.maximum(one, 1e-300)
    explained = np.where(usable, two_waves, one_wave)
    return np.where(one > 1e-9 * len(x), explained, 0.0) / total
