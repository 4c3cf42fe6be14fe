"""Checks of fitted posteriors.

The package holds convergence diagnostics, comparisons with a reference, leave-one-out predictions,
simulation-based calibration and metrics.
"""

from ..numerics import libraries as libraries  # first: it imports NumPy and torch
from ..posterior.convergence import (
    convergence_warnings,
    ess,
    k_hat_limit,
    mcse,
    psis,
    rhat,
    scalars,
    wasserstein,
)

__all__ = [
    "convergence_warnings",
    "ess",
    "k_hat_limit",
    "mcse",
    "psis",
    "rhat",
    "scalars",
    "wasserstein",
]
