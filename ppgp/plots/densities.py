"""Densities of draws that stay inside the set of values that a site can have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.special import expit, logit
from scipy.stats import gaussian_kde
from torch.distributions import constraints

from ..posterior.posterior import Posterior, simulator_of
from ..priors import Flat, Prior, Site

Bounds = tuple[float, float]

REAL: Bounds = (-math.inf, math.inf)
POINTS = 200
TAIL = 0.002  # the probability beyond each end of the grid, before its margin


def density(values: np.ndarray, bounds: Bounds = REAL) -> tuple[np.ndarray, np.ndarray]:
    """Return a kernel density estimate of draws, on a grid.

    Draws with bounds are transformed to the real line first: by the log of the distance from one
    bound, or by the logit between two. The estimate is then 0 outside the bounds. Silverman (1986),
    section 2.10.

    Args:
        values: The draws, of any shape, which are not all equal.
        bounds: The lower and the upper bound; infinite where there is none. Bounds that the draws
            do not respect are not used.

    Returns:
        The grid and the density, each [POINTS].
    """
    flat = np.asarray(values, dtype=float).ravel()
    lower, upper = bounds
    if flat.min() < lower or flat.max() > upper:
        lower, upper = REAL
    low, high = np.quantile(flat, [TAIL, 1 - TAIL])
    margin = 0.1 * (high - low)
    thin = 1e-6 * (high - low)
    first, last = max(low - margin, lower + thin), min(high + margin, upper - thin)
    grid = np.linspace(first, last, POINTS)
    inside = np.clip(flat, lower + thin * 1e-3, upper - thin * 1e-3)
    real, _ = _on_real_line(inside, lower, upper)
    if np.ptp(real) == 0:
        real, (lower, upper) = flat, REAL
    at, slope = _on_real_line(grid, lower, upper)
    return grid, gaussian_kde(real)(at) * slope


def _on_real_line(v: np.ndarray, lower: float, upper: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the transformed values, and the absolute derivative of the transformation."""
    if math.isinf(lower) and math.isinf(upper):
        return v, np.ones_like(v)
    if math.isinf(upper):
        return np.log(v - lower), 1 / (v - lower)
    if math.isinf(lower):
        return np.log(upper - v), 1 / (upper - v)
    share = (v - lower) / (upper - lower)
    real = logit(share)
    p = expit(real)
    return real, 1 / ((upper - lower) * p * (1 - p))


def bounds_of_sites(posterior: Posterior) -> dict[str, Bounds]:
    """Return the bounds of the values of each site, where they are known: ``{site: bounds}``."""
    if posterior.data.is_table:
        sites = posterior.model.sites_at(posterior.data.d)
        like = posterior.data.like
        return {name: _of_site(s, like) for name, s in sites.items() if isinstance(s, Site)}
    records = simulator_of(posterior).one_run()
    return {name: _of_support(records[name]["fn"]) for name in posterior.draws if name in records}


def _of_site(site: Site, like: torch.Tensor) -> Bounds:
    """Return the bounds of a site of a model."""
    if site.positive:
        return 0.0, math.inf
    if not isinstance(site.prior, Prior) or isinstance(site.prior, Flat):
        return REAL
    return _of_support(site.distribution(like))


def _of_support(distribution: Any) -> Bounds:
    """Return bounds that hold for every entry of a distribution."""
    try:
        support: Any = distribution.support
    except NotImplementedError:  # a distribution of the user's own that states none
        return REAL
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    if support is constraints.simplex:
        return 0.0, 1.0
    lower = torch.as_tensor(getattr(support, "lower_bound", -math.inf))
    upper = torch.as_tensor(getattr(support, "upper_bound", math.inf))
    return float(lower.min()), float(upper.max())
