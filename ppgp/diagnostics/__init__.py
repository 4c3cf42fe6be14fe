"""Whether to believe an answer: convergence, comparison, leave-one-out, calibration by simulation, metrics."""

from .. import libraries as libraries  # first: it imports NumPy and torch
from ..posterior.convergence import ess, ess_quantity, k_hat_limit, mcse, psis, rhat, scalars, troubles, wasserstein

__all__ = ["ess", "ess_quantity", "k_hat_limit", "mcse", "psis", "rhat", "scalars", "troubles", "wasserstein"]
