"""Densities that are 0 where a value or a parameter leaves its set, as Pyro's validation has it.

Without validation torch evaluates the formula of a density anywhere: an exponential distribution
grows for negative values, and a Bernoulli distribution takes a probability of 1.3 for 1. Where
values or parameters depend on latent sites, a sampler would go there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import (
    Cauchy,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogNormal,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
    constraints,
)
from torch.distributions.utils import lazy_property

from .handlers import AROUND, is_transformed, without_validation

# -inf or NaN wherever a parameter is out of its set: the formula takes its log, or a factor of it
NAN_ANYWAY = (
    Normal,
    LogNormal,
    Laplace,
    Cauchy,
    Gumbel,
    StudentT,
    HalfNormal,
    HalfCauchy,
    Uniform,
    MultivariateNormal,
    LowRankMultivariateNormal,
)
# any number, or a matrix whose factorisation fails by itself
NOT_CHECKED = tuple(
    type(c)
    for c in (
        constraints.real,
        constraints.positive_definite,
        constraints.positive_semidefinite,
        constraints.symmetric,
        constraints.square,
        constraints.lower_cholesky,
        constraints.lower_triangular,
        constraints.corr_cholesky,
    )
)


@dataclass(frozen=True)
class Guard:
    """What is checked at a site: its parameters, its value, or both."""

    parameters: bool
    value: bool


class Guarding(Messenger):
    """Give the sites of a program a density of 0 outside their sets.

    Args:
        guards: ``{site: Guard}``.
    """

    changes_laws = True  # so that it sees each step of ppgp.scan

    def __init__(self, guards: Mapping[str, Guard]) -> None:
        super().__init__()
        self.guards = guards

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.guards:
            law = without_validation(msg["fn"])
            msg["fn"] = _guarded(law, self.guards[msg["name"]])


def guards(samples: Mapping[str, Mapping[str, Any]]) -> dict[str, Guard]:
    """Return what has to be checked at each site that may leave its set.

    Args:
        samples: The sample sites of a run in which latent values require a gradient.
    """
    found = {}
    for name, site in samples.items():
        law, value = site["fn"], site["value"]
        if not isinstance(value, Tensor) or isinstance(law, dist.Unit | dist.Delta):
            continue
        parameters = any(p.requires_grad for p, _ in _parameters(law))
        # the value of a latent site is mapped to its support
        own = Guard(parameters, bool(site["is_observed"]) and _value_may_leave(law, value))
        if own.parameters or own.value:
            found[name] = own
    return found


def everything(samples: Mapping[str, Mapping[str, Any]]) -> dict[str, Guard]:
    """Return a check of every parameter and observed value."""
    return {
        name: Guard(True, bool(s["is_observed"]))
        for name, s in samples.items()
        if isinstance(s["value"], Tensor) and not isinstance(s["fn"], dist.Unit | dist.Delta)
    }


def _parts(law: Any) -> list[Any]:
    """Return the distributions that a distribution is made of."""
    if isinstance(law, MixtureSameFamily):
        return [law.mixture_distribution, law.component_distribution]
    made = isinstance(law, (*AROUND, dist.ZeroInflatedDistribution)) or is_transformed(law)
    return [law.base_dist] if made else []


def _parameters(law: Any) -> Iterator[tuple[Tensor, Any]]:
    """Return the parameters of a distribution that are checked, with their constraints."""
    for part in _parts(law):
        yield from _parameters(part)
    yield from _own_parameters(law)


def _own_parameters(law: Any) -> Iterator[tuple[Tensor, Any]]:
    if isinstance(law, (*NAN_ANYWAY, *AROUND)):
        return
    for name, constraint in law.arg_constraints.items():
        lazy = isinstance(getattr(type(law), name, None), lazy_property)
        if (lazy and name not in law.__dict__) or not _is_checked(constraint):
            continue
        value = getattr(law, name)
        if isinstance(value, Tensor):
            yield value, constraint


def _is_checked(constraint: Any) -> bool:
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    return not constraints.is_dependent(constraint) and not isinstance(constraint, NOT_CHECKED)


def _value_may_leave(law: Any, value: Tensor) -> bool:
    """Return whether a value, or the support of its distribution, depends on latent sites."""
    if is_transformed(law):
        moved = value
        for transform in reversed(law.transforms):
            moved = transform.inv(moved)
        return _value_may_leave(law.base_dist, moved)
    if isinstance(law, MixtureSameFamily):
        return _value_may_leave(law.component_distribution, law._pad(value))
    parts = _parts(law)
    if parts:
        return _value_may_leave(parts[0], value)
    support = _support(law)
    if support is None:
        return False
    return value.requires_grad or any(
        isinstance(bound, Tensor) and bound.requires_grad for bound in vars(support).values()
    )


def _support(law: Any) -> Any:
    """Return the support that is checked, of one number or event; None if there is none."""
    if isinstance(law, NAN_ANYWAY) or _parts(law):
        return None
    try:
        support = law.support
    except NotImplementedError:
        return None
    return support if _is_checked(support) else None


def _guarded(law: Any, guard: Guard) -> Any:
    """Return the distribution with a density of 0 outside the sets that are checked."""
    within = copy.copy(law)
    within.guard = guard
    if isinstance(law, MixtureSameFamily):
        within._mixture_distribution = law.mixture_distribution
        within._component_distribution = _guarded(law.component_distribution, guard)
    elif _parts(law):
        within.base_dist = _guarded(law.base_dist, guard)
    if isinstance(law, AROUND):
        return within
    plain = within.log_prob

    def log_prob(value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        found = plain(value, *args, **kwargs)
        for inside in _inside(law, value, guard):
            each = inside
            if not _fits(inside.shape, found.shape):
                each = inside.all()
            found = torch.where(each, found, -torch.inf)
        return found

    within.log_prob = log_prob
    return within


def _fits(shape: torch.Size, whole: torch.Size) -> bool:
    """Return whether a shape broadcasts to another, which stays as it is.

    ``torch.broadcast_shapes`` would import sympy, which takes a second.
    """
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(own in (1, size) for own, size in pairs)


def guarded_like(law: Any, other: Any) -> Any:
    """Return a distribution with the checks that ``Guarding`` gave to another of its kind."""
    guard = vars(other).get("guard")
    return law if guard is None else _guarded(law, guard)


def _inside(law: Any, value: Tensor, guard: Guard) -> Iterator[Tensor]:
    """Return for each check whether it passes, in the batch shape of the distribution."""
    chain: Any = law
    if guard.parameters:
        parameters = list(_own_parameters(law))
        if isinstance(law, MixtureSameFamily):
            parameters += _own_parameters(law.mixture_distribution)
        for parameter, constraint in parameters:
            if constraint is constraints.simplex:  # the distribution has divided by the sum
                yield (parameter >= 0).all(-1)
            else:
                yield constraint.check(parameter)
    support = _support(law)
    if guard.value and is_transformed(law):
        last = chain.transforms[-1].codomain  # an inverse may clamp what lies outside
        if _is_checked(last):
            yield last.check(value)
    elif guard.value and support is not None:
        yield support.check(value)
