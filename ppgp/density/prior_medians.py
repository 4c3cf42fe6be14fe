"""Where searches and chains start: the medians of the priors, and how far priors reach.

Both are on the unconstrained scale. A map of one number to another that only rises or falls takes
medians to medians, so that the median of a site there is the image of its median.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyro.distributions as dist
import torch
from scipy import special
from torch import Tensor
from torch.distributions import (
    Cauchy,
    LogNormal,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    StudentT,
    TransformedDistribution,
    VonMises,
    constraints,
)
from torch.distributions.transforms import IndependentTransform, Transform

from ..distributions.univariate import icdf
from ..priors import FlatDistribution, Site
from ..priors.sites import law_of
from ..runtime.seeding import seeded
from .handlers import AROUND, mapping
from .layout import Partly, Slice

#: the median, and what a normal variable is one standard deviation below and above it
PROBABILITIES = (0.5, 0.15865525393145705, 0.8413447460685429)
DRAWS = 1_001  # of a prior without quantiles in closed form
MOST_NUMBERS = 2_000_000  # that are drawn for one site
#: On the unconstrained scale: a prior whose reach is longer and which is skewed names no scale. The
#: median of Gamma(0.001, 0.001) is 1e-299.
VAGUE = 3.0
SKEWED = 0.2  # the difference of the two halves of the reach, as a share of the reach


def at_medians(
    slices: Mapping[str, Slice], laws: Mapping[str, Any], z: Tensor
) -> tuple[Tensor, Tensor]:
    """Return z [p] with each site at the median of its prior, and the reach of the priors [p].

    The reach is half the distance between the quantiles of a normal variable at one standard
    deviation below and above. Where a prior has no median (it is improper, or on vectors whose
    entries are tied to one another), z stays and the reach is infinite.

    Args:
        slices: ``{site: Slice}``.
        laws: ``{site: its prior}``; sites that are missing stay.
        z: The point, [p].
    """
    moved, reach = z.clone(), torch.full_like(z, math.inf)
    for name, law in laws.items():
        s = slices[name]
        found = _median_and_reach(name, law, s)
        if found is None:
            continue
        centre, width = (part.to(z) for part in found)
        usable = centre.isfinite() & width.isfinite()
        own = slice(s.start, s.stop)
        moved[own] = torch.where(usable, centre, z[own])
        reach[own] = torch.where(usable, width, reach[own])
    return moved, reach


def declared_laws(
    slices: Mapping[str, Slice], sites: Mapping[str, Any], like: Tensor
) -> dict[str, Any]:
    """Return ``{site: prior}`` of the sites whose priors a model declares.

    Args:
        slices: ``{site: Slice}``.
        sites: ``{name: Site or Param}``, as ``Model.sites_at`` gives them.
        like: A tensor with the dtype and the device of the priors.
    """
    known = {name: site for name, site in sites.items() if name in slices}
    return {
        name: law_of(site, like)
        for name, site in known.items()
        if isinstance(site, Site) and not site.fixed and site.start is None
    }


def has_several_modes(law: Any) -> bool:
    """Return whether the density of data under this law may have several modes in its location."""
    while isinstance(law, AROUND):
        law = law.base_dist
    return isinstance(law, StudentT | Cauchy) or "Mixture" in type(law).__name__


def quantiles_of(name: str, law: Any, s: Slice, at: Sequence[float]) -> Tensor:
    """Return the quantiles of the prior of a site on the unconstrained scale, [k, entry].

    They are NaN where they are not known: of an improper prior, or one whose entries are tied.
    """
    unknown = torch.full((len(at), s.stop - s.start), torch.nan, dtype=torch.float64)
    if s.circular or isinstance(s.transform, Partly):
        return unknown
    try:
        found = _quantiles(law, at)
        if found is None:
            return unknown
        free = mapping(name, law).inv(found).reshape(len(at), -1)
    except (RuntimeError, ValueError, ArithmeticError, NotImplementedError, TypeError):
        return unknown  # a law of the user without what torch's have
    return free if free.shape == unknown.shape else unknown


def _median_and_reach(name: str, law: Any, s: Slice) -> tuple[Tensor, Tensor] | None:
    """Return the median and the reach of a site on the unconstrained scale, each flat."""
    if s.circular:
        return _of_angles(law, s)
    base = law
    while isinstance(base, AROUND):
        base = base.base_dist
    if isinstance(base, Normal | LogNormal) and not isinstance(s.transform, Partly):
        loc, scale = (getattr(base, part).detach().expand(s.event) for part in ("loc", "scale"))
        return loc.reshape(-1), scale.reshape(-1)
    try:
        found = _quantiles(law)
        if found is None:
            return None
        transform = mapping(name, law)
        if isinstance(s.transform, Partly):
            transform = s.transform.of(transform)
            if found[0].shape != s.event:
                found = found.expand(len(found), *s.event)
        free = transform.inv(found).reshape(len(found), -1)
    except (RuntimeError, ValueError, ArithmeticError, NotImplementedError, TypeError):
        return None  # a law of the user without what torch's have
    if free.shape[1] != s.stop - s.start:
        return None
    centre, low, high = free
    reach = 0.5 * (high - low).abs()
    skew = (high + low - 2 * centre).abs()
    # of numbers on the whole line, the reach is in their own units
    by_log = base.support is not constraints.real
    vague = (reach > VAGUE) & (skew > SKEWED * reach) & by_log
    return torch.where(vague, torch.nan, centre), reach


def _of_angles(law: Any, s: Slice) -> tuple[Tensor, Tensor] | None:
    """Return the places of the means of angles in the plane, as ``_median_and_reach`` does."""
    while isinstance(law, AROUND):
        law = law.base_dist
    if not isinstance(law, VonMises):
        return None
    centre = s.transform.inv(law.loc.detach().expand(s.event)).reshape(-1)
    return centre, torch.ones_like(centre)


def _quantiles(law: Any, at: Sequence[float] = PROBABILITIES) -> Tensor | None:
    """Return the quantiles of each entry at probabilities, [k, *batch, *event].

    They are None for an improper prior, and for one whose entries are tied to one another.
    """
    shape = (len(at), *law.batch_shape, *law.event_shape)
    while isinstance(law, AROUND):
        law = law.base_dist
    if isinstance(law, FlatDistribution | dist.ImproperUniform):
        return None
    if getattr(law, "improper", False):
        return None
    found = _of_family(law, at)
    if found is None:
        return None
    return found.detach().expand(shape)


def _of_family(law: Any, at: Sequence[float]) -> Tensor | None:
    """Return the quantiles of a distribution that no other is around."""
    p = torch.tensor(at, dtype=torch.float64)
    p = p.reshape(len(p), *(1,) * (len(law.batch_shape) + len(law.event_shape)))
    if isinstance(law, MultivariateNormal | LowRankMultivariateNormal):
        unit = torch.special.ndtri(p).to(law.loc)
        return law.loc + unit * law.variance.sqrt()
    if isinstance(law, StudentT):
        unit = torch.as_tensor(special.stdtrit(law.df.detach().double().cpu().numpy(), p.numpy()))
        return law.loc + unit.to(law.loc) * law.scale
    if isinstance(law, TransformedDistribution):
        found = _through_transforms(law, at)
        if found is not None:
            return found
    if law.event_shape:
        return None
    found = None
    with torch.no_grad():
        mean = getattr(law, "loc", None)
        like = mean if isinstance(mean, Tensor) else next(iter(_tensors(law)), p)
        found = icdf(law, p.to(like))
    return _of_draws(law, at) if found is None else found


def _tensors(law: Any) -> list[Tensor]:
    """Return the real tensors that a distribution holds."""
    return [
        value
        for value in vars(law).values()
        if isinstance(value, Tensor) and value.is_floating_point()
    ]


def _through_transforms(law: TransformedDistribution, at: Sequence[float]) -> Tensor | None:
    """Return the quantiles of the base, transformed; None unless each entry only rises or falls."""
    if not all(_is_by_entry(transform) for transform in law.transforms):
        return None
    found = _quantiles(law.base_dist, at)
    if found is None:
        return None
    for transform in law.transforms:
        found = transform(found)
    return found


def _is_by_entry(transform: Transform) -> bool:
    """Whether a transform maps each number by itself, and one to one."""
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    one_number = transform.domain.event_dim == 0 and transform.codomain.event_dim == 0
    return bool(transform.bijective) and one_number


def _of_draws(law: Any, at: Sequence[float]) -> Tensor | None:
    """Return quantiles of draws from a distribution of single numbers; None if there are many."""
    numbers = math.prod(law.batch_shape)
    if numbers * DRAWS > MOST_NUMBERS:
        return None
    with seeded(0), torch.no_grad():
        draws = law.sample(torch.Size([DRAWS])).sort(0).values
    places = torch.tensor([round(q * (DRAWS - 1)) for q in at], device=draws.device)
    return draws.index_select(0, places)
