"""Checks of fitted posteriors.

The package holds convergence diagnostics, comparisons with a reference, leave-one-out predictions,
simulation-based calibration and metrics.
"""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
from ..posterior.convergence import convergence_warnings, ess, mcse, rhat, scalars
from ..posterior.sample_statistics import k_hat_limit, psis, wasserstein
from ..runtime import libraries as libraries  # first: it imports NumPy and torch

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

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    __getattr__ = hints(__name__, __all__, elsewhere={"psis_loo": "ppgp.psis_loo"})
