"""The named quantities of a model: sites, which have a prior or a number, and params, which are optimised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import constraints

from ..errors import SettingError, counted
from .records import Dirichlet, Flat, Prior, PriorLike, bare, entries, is_number, tensor_of

SiteOrParam = TypeVar("SiteOrParam", bound="Site | Param")


@dataclass(frozen=True)
class Site:
    """One named quantity of a model: its prior (or fixed number), the shape of its event, whether it must be positive."""

    prior: PriorLike
    shape: tuple[int, ...] = ()
    positive: bool = False
    start: Tensor | None = field(
        default=None, repr=False, compare=False
    )  # where a search begins; None: what the prior says

    @property
    def fixed(self) -> bool:
        return not isinstance(self.prior, Prior)

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        prior = bare(self.prior)
        assert isinstance(prior, Prior)
        if isinstance(prior, Dirichlet):
            return prior.distribution(like, self.shape[-1])
        options = {"positive": self.positive} if isinstance(prior, Flat) else {}
        one = prior.distribution(like, **options)
        return one.expand(torch.Size(self.shape)).to_event(len(self.shape))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Param:
    """One named tensor that is optimised rather than inferred; its value is where the search begins.

    Not ``trained``: it is named and stored with the others, and no gradient reaches it (a network's buffers).
    """

    value: Tensor = field(repr=False, compare=False)
    trained: bool = True
    constraint: constraints.Constraint = field(default=constraints.real, repr=False, compare=False)
    fixed = True  # not drawn: it has no prior

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)


def site(
    name: str,
    prior: PriorLike,
    shape: tuple[int, ...] = (),
    positive: bool = False,
    zero: bool = False,
) -> Site:
    """A checked Site: a positive quantity needs a prior on positive numbers, or positive numbers (or 0, with ``zero``); one number, or
    one for each entry along the last axis.

    Raises:
        SettingError: if the prior can give values that the quantity cannot take.
    """
    if isinstance(prior, Prior):
        _one_each(name, bare(prior), shape)
        if positive and not prior.positive and not isinstance(bare(prior), Flat):
            raise SettingError(
                f"a prior on positive numbers for {name}",
                repr(prior),
                "use LogNormal, Gamma, HalfNormal or Flat",
            )
    elif not all(map(is_number, entries(prior))):
        raise SettingError(
            f"a prior or a finite number for {name}",
            repr(prior),
            "write float(...), or a tuple for one each",
        )
    elif positive and any(v < 0 or (v == 0 and not zero) for v in entries(prior)):
        raise SettingError(
            f"a positive number for {name}", repr(prior), "fix it above 0, or give it a prior"
        )
    elif isinstance(prior, tuple) and (not shape or len(prior) != shape[-1]):
        _refuse_length(name, prior, shape)
    return Site(prior, shape, positive)


def _one_each(name: str, prior: Prior, shape: tuple[int, ...]) -> None:
    """Refuse a prior whose tuples have another length than the last axis of its site."""
    for f in fields(prior):  # type: ignore[arg-type]
        value = getattr(prior, f.name)
        if isinstance(value, tuple) and (not shape or len(value) != shape[-1]):
            _refuse_length(f"{f.name} of the prior of {name}", value, shape)


def _refuse_length(name: str, value: tuple[float, ...], shape: tuple[int, ...]) -> None:
    wanted = f"one number, or {shape[-1]} (one for each entry)," if shape else "one number"
    raise SettingError(f"{wanted} for {name}", counted(len(value), "number"), "change it")


def value_of(theta: Mapping[str, Tensor], name: str, prior: PriorLike, like: Tensor) -> Tensor:
    """The value of a site: from ``theta``, or the number that the record fixes it to.

    Raises:
        SettingError: if it is in neither place.
    """
    if name in theta:
        return theta[name]
    if isinstance(prior, Prior):
        raise SettingError(
            f"a value for {name} in theta", f"only {sorted(theta)}", f"add {name!r} to theta"
        )
    return tensor_of(prior if isinstance(prior, tuple) else float(prior), like)


def prefixed(prefix: str, sites: Mapping[str, SiteOrParam]) -> dict[str, SiteOrParam]:
    """The same sites under ``prefix.name``."""
    return {f"{prefix}.{name}": s for name, s in sites.items()}


def under(prefix: str, theta: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of theta that stands under ``prefix.``, with the prefix taken off."""
    head = prefix + "."
    return {name[len(head) :]: value for name, value in theta.items() if name.startswith(head)}
