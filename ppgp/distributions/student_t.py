"""Student's t distribution for degrees of freedom of any size, and its information about them.

The leading terms of its digamma and trigamma functions cancel at large df. They are then sums of
the series in 1 / df of digamma((df + 1) / 2) - digamma(df / 2), DLMF 5.11.2.
"""

from __future__ import annotations

import math
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor

from .gamma_functions import log1p_excess, log_rising, polynomial

__all__ = [
    "StudentTOfAnyDf",
    "digamma_part",
    "excess_of_log1p",
    "information",
    "trigamma_part",
]
LARGE = 60.0  # from here on the series are exact to rounding
#: coefficients of df^-4, df^-6, ... in -(digamma_part(df) + 1 / (2 df^2))
TERMS = (-1 / 4, 1 / 2, -17 / 8, 31 / 2, -691 / 4)


class StudentTOfAnyDf(dist.StudentT):
    """Student's t distribution whose log density keeps its digits for large df.

    torch subtracts two log gamma functions, which leaves an error of 3e-5 at df = 1e10, and 20 at
    df = 1e17. The arguments are those of torch.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        own: Any = self
        df, scale = own.df, own.scale
        z = (value - own.loc) / scale
        # log Gamma(df / 2 + 1 / 2) - log Gamma(df / 2) - log(df / 2) / 2
        rising = log_rising(0.5 * df, torch.full_like(df, 0.5))
        tail = 0.5 * (df + 1) * torch.log1p(z.square() / df)
        return rising - 0.5 * math.log(2 * math.pi) - scale.log() - tail


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
