"""Figures of posteriors, predictions and regions.

They use matplotlib's object interface, so that no global state changes; each function returns its
Figure.
"""

from ..numerics import libraries as libraries  # first: it imports NumPy and torch
from .chains import pair, rank, trace
from .checks import elbo, k_hat, loo, predictive_check, sbc
from .common import COLOURS, MOST_SITES
from .labels import decision, reliability
from .sets import coverage, function, intervals, online, widths
from .sites import differences, marginals
from .suited_figures import suited

__all__ = [
    "COLOURS",
    "MOST_SITES",
    "coverage",
    "decision",
    "differences",
    "elbo",
    "function",
    "intervals",
    "k_hat",
    "loo",
    "marginals",
    "online",
    "pair",
    "predictive_check",
    "rank",
    "reliability",
    "sbc",
    "suited",
    "trace",
    "widths",
]
