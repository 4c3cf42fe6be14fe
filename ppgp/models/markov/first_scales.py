"""Where the search of a process in time starts: the best of a few lengthscales and noises."""

from __future__ import annotations

import math

import pyro
import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...density.handlers import quietly
from ...errors import NumericalError
from ...priors import Site
from ..base import Model

FACTORS = (1.0, 0.3, 0.1, 0.03, 0.01)  # all lengthscales, in sd of the times
NOISES = (1.0, 0.1, 0.01)  # the noise variance, in variances of y
MOST_ROWS = 5_000  # successive rows on which the places are compared


def first_scales(model: Model, data: Dataset, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return {site: value} of the highest density among common factors of all lengthscales.

    A density of lengthscales has a mode for each scale of the function. From lengthscales as long
    as the data a search ends in that of the trend, where a season is noise.

    Args:
        model: A model with sites "noise" and "kernel...lengthscale".
        data: The rows; of many, ``MOST_ROWS`` successive ones are used.
        given: {site: value} where other sites start, the rest at 1 or 0.

    Returns:
        The values; empty if no lengthscale is free, or no density is finite.
    """
    free = {k: s for k, s in model.sites_at(data.d).items() if isinstance(s, Site) and not s.fixed}
    scales = [name for name in free if name.endswith("lengthscale") and name not in given]
    if not scales:
        return {}
    rest = {k: torch.full(s.shape, float(s.positive)).to(data.X) for k, s in free.items()} | given
    rows = data if data.n <= MOST_ROWS else data.rows(_successive(data.X[:, 0]))
    noises = NOISES if "noise" in free else NOISES[:1]
    spread, variance = float(data.X[:, 0].std()), float(data.y.var())
    if not spread > 0 or not variance > 0:
        return {}
    best: dict[str, Tensor] = {}
    highest = -math.inf
    for factor in FACTORS:
        for noise in noises:
            place = {k: torch.full_like(rest[k], factor * spread) for k in scales}
            if "noise" in free:
                place["noise"] = torch.full_like(rest["noise"], noise * variance)
            height = _log_density(model, {**rest, **place}, rows)
            if height > highest:
                best, highest = place, height
    return best


def _successive(times: Tensor) -> Tensor:
    """Return the rows in the middle of the times."""
    first = (len(times) - MOST_ROWS) // 2
    return torch.argsort(times)[first : first + MOST_ROWS]


def _log_density(model: Model, values: dict[str, Tensor], data: Dataset) -> float:
    """Return the log density of the values and of y; minus infinity where it is not finite."""
    args, kwargs = data.passed()
    try:
        with quietly(), torch.no_grad():
            run = pyro.poutine.trace(pyro.poutine.condition(model.model, data=values))
            total = run.get_trace(*args, **kwargs).log_prob_sum()
    except (NumericalError, RuntimeError, ValueError, ArithmeticError):
        return -math.inf
    value = float(total)
    return -math.inf if math.isnan(value) else value
