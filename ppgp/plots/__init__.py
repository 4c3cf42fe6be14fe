"""Figures of posteriors, predictions and regions.

They use matplotlib's object interface, so that no global state changes; each function returns its
Figure. The subject of a figure decides its file:

- ``chains``: Markov chains (traces, ranks, pairs of scalars with divergences).
- ``diagnostic_figures``: whether a posterior can be trusted (k-hat, leave-one-out, the ELBO,
  replicates of the data, simulation-based calibration).
- ``sites``: the sites of several posteriors (marginals, differences from a reference).
- ``sets``: intervals and sets of predictions (intervals, coverage, widths, functions of one input,
  online methods).
- ``counts``: counts against those that a fit expects (rootogram).
- ``groups``: coefficients that vary between groups of rows (shrinkage).
- ``labels``: predicted classes (reliability, decision regions).
- ``suited_figures``: the choice that suits one posterior. ``common``: colours and panels.
"""

from ..numerics import libraries as libraries  # first: it imports NumPy and torch
from .chains import pair, rank, trace
from .common import COLOURS, MOST_SITES
from .counts import rootogram
from .diagnostic_figures import elbo, k_hat, loo, predictive_check, sbc
from .groups import shrinkage
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
    "rootogram",
    "sbc",
    "shrinkage",
    "suited",
    "trace",
    "widths",
]
