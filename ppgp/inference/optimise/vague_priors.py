"""Priors that leave the scale of a site open: improper ones, and those with a wide log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Independent, constraints

from ...density.handlers import Run, quietly
from ...density.target import Target
from ...priors import Prior, Site
from ...runtime.seeding import seeded

#: Standard deviations of the log: nine in ten draws then span a factor of e^10, or 20,000.
WIDE = 3.0
#: Draws that estimate the spread of a log that has no closed form, to some 5 %.
DRAWS = 400


def vague_sites(target: Target) -> list[str]:
    """Return the sites whose prior is improper, or has a log with an sd above ``WIDE``."""
    return [
        name
        for name, prior in _priors(target).items()
        if improper(prior) or log_spread(prior)[1] > WIDE
    ]


def _priors(target: Target) -> dict[str, Any]:
    """Return the prior distribution of each site that is searched.

    A model of the library knows its priors; a program is run once.
    """
    wanted = {name for name, s in target.slices.items() if not s.param}
    sites: Mapping[str, Any] = target.model.sites(target.data.d)
    if wanted <= sites.keys():
        known = {name: sites[name] for name in wanted if isinstance(sites[name], Site)}
        priors = {name: s for name, s in known.items() if isinstance(s.prior, Prior)}
        return {name: s.distribution(target.data.like) for name, s in priors.items()}
    with quietly(), seeded(0), torch.no_grad(), Run({}, params=target.params) as run:
        target.run_program()
    return {name: run.sites[name]["fn"] for name in wanted}


def improper(prior: Any) -> bool:
    """Whether a prior has no finite integral: its draws are starting values, not a sample."""
    while hasattr(prior, "base_dist"):
        prior = prior.base_dist
    return bool(getattr(prior, "improper", False)) or isinstance(prior, dist.ImproperUniform)


def log_spread(prior: Any) -> tuple[Tensor, float]:
    """Return the median [*event] and the largest sd of the log of a prior on positive numbers.

    The sd is 0 for a prior on other numbers, and infinite for an improper one.
    """
    if improper(prior):  # Pyro's improper prior cannot be drawn from
        return torch.zeros(()), math.inf
    base = prior
    while isinstance(base, Independent):
        base = base.base_dist
    if isinstance(base, dist.LogNormal):
        return base.loc, float(base.scale.max())
    support = base.support
    above = isinstance(support, constraints.greater_than | constraints.greater_than_eq)
    if not above or bool(torch.as_tensor(support.lower_bound).ne(0).any()):
        return torch.zeros(()), 0.0
    with seeded(0), torch.no_grad():
        logs = prior.sample(torch.Size([DRAWS])).log()
    spread = float(logs.std(0).max())
    if not math.isfinite(spread):  # a draw that rounds to 0 has a log of minus infinity
        spread = math.inf
    return logs.median(0).values, spread
