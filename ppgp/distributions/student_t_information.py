"""Digamma and trigamma terms of Student's t as functions of its degrees of freedom.

Their leading terms cancel at large df. They are then sums of the series in 1 / df of
digamma((df + 1) / 2) - digamma(df / 2), DLMF 5.11.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .log_gamma import log1p_excess, polynomial

LARGE = 60.0  # from here on the series are exact to rounding
#: coefficients of df^-4, df^-6, ... in -(digamma_part(df) + 1 / (2 df^2))
TERMS = (-1 / 4, 1 / 2, -17 / 8, 31 / 2, -691 / 4)


def digamma_part(df: Tensor) -> Tensor:
    """Return digamma(df / 2) - digamma((df + 1) / 2) + 1 / df."""
    low, square = 0.5 * df.clamp_max(LARGE), df.clamp_min(LARGE) ** -2
    direct = torch.digamma(low) - torch.digamma(low + 0.5) + 0.5 / low
    series = -square * (0.5 + square * polynomial(TERMS, square))
    return torch.where(df < LARGE, direct, series)


def trigamma_part(df: Tensor) -> Tensor:
    """Return df^2 (trigamma((df + 1) / 2) - trigamma(df / 2)) / 4 + 1 / 2."""
    return _trigamma_rest(df) - 0.5 / df


def _trigamma_rest(df: Tensor) -> Tensor:
    """Return ``trigamma_part`` plus 1 / (2 df), which is of order df^-3."""
    low, inverse = df.clamp_max(LARGE), 1 / df.clamp_min(LARGE)
    # the zeta function of Hurwitz: torch's trigamma has a relative error of 1e-9
    gap = torch.special.zeta(2.0, 0.5 * low + 0.5) - torch.special.zeta(2.0, 0.5 * low)
    direct = 0.25 * low.square() * gap + 0.5 + 0.5 / low
    terms = [-(k + 1) * c for k, c in enumerate(TERMS, 1)]
    return torch.where(df < LARGE, direct, inverse**3 * polynomial(terms, inverse.square()))


def excess_of_log1p(t: Tensor) -> Tensor:
    """Return log(1 + t) - t / (1 + t), for t >= 0."""
    log1p, share = torch.log1p(t), t / (1 + t)
    return torch.where(t < 0.3, log1p_excess(t, log1p) + t * share, log1p - share)


def information(df: Tensor) -> Tensor:
    """Return the Fisher information of log df. Lange, Little & Taylor (1989), appendix B."""
    x = 1 / df
    # df (df + 5) / ((df + 1) (df + 3)) = 1 + x - x^2 (7 + 3 x) / ((1 + x) (1 + 3 x))
    rational = 0.5 * x.square() * (7 + 3 * x) / ((1 + x) * (1 + 3 * x))
    return rational - _trigamma_rest(df)
