"""Priors that leave the scale of a site open: improper ones, and those whose log has a wide spread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Independent, constraints

from ...data.dataset import Dataset
from ...numerics.seeding import seeded
from ...priors import Prior, Site
from ...target.handlers import Run, quietly
from ...target.target import Target

WIDE = 3.0  # standard deviations of the log: nine in ten draws span a factor of e^10, or 20,000
DRAWS = 400  # of a law whose log has no known spread; that of the spread is then known to some 5 %


def vague_sites(target: Target) -> list[str]:
    """The sites that the prior leaves open: it is improper, or its log has an sd above ``WIDE``."""
    laws = _laws(target)
    return [name for name, law in laws.items() if improper(law) or log_spread(law)[1] > WIDE]


def _laws(target: Target) -> dict[str, Any]:
    """The prior of each site that is searched; a model of the library knows them without a run."""
    wanted = {name for name, s in target.slices.items() if not s.param}
    if isinstance(target.data, Dataset):
        sites: Mapping[str, Any] = target.model.sites(target.data.d)
        if wanted <= sites.keys():
            like = target.data.X
            known = {name: sites[name] for name in wanted if isinstance(sites[name], Site)}
            priors = {name: s for name, s in known.items() if isinstance(s.prior, Prior)}
            return {name: s.distribution(like) for name, s in priors.items()}
    with quietly(), seeded(0), torch.no_grad(), Run({}, params=target.params) as run:
        target.run_program()
    return {name: run.sites[name]["fn"] for name in wanted}


def improper(law: Any) -> bool:
    """Whether it is no law: its draws are a start, not a sample."""
    while hasattr(law, "base_dist"):
        law = law.base_dist
    return bool(getattr(law, "improper", False)) or type(law).__name__ == "ImproperUniform"


def log_spread(law: Any) -> tuple[Tensor, float]:
    """Mean [*event] and largest sd of the log of a law of positive numbers; an sd of 0 for any other law, infinity for none."""
    if improper(law):  # Pyro's cannot be drawn from
        return torch.zeros(()), math.inf
    one = law
    while isinstance(one, Independent):
        one = one.base_dist
    if isinstance(one, dist.LogNormal):
        return one.loc, float(one.scale.max())
    support = one.support
    above = isinstance(support, constraints.greater_than | constraints.greater_than_eq)
    if not above or bool(torch.as_tensor(support.lower_bound).ne(0).any()):
        return torch.zeros(()), 0.0
    with seeded(0), torch.no_grad():
        logs = law.sample(torch.Size([DRAWS])).log()
    spread = float(logs.std(0).max())
    # draws that are 0 to rounding have a log of minus infinity
    return logs.median(0).values, spread if math.isfinite(spread) else math.inf
