"""The named quantities of a model: sites, with a prior or a number, and optimised params."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeVar, cast

import pyro
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..errors import SettingError, counted
from .from_distribution import FromDistribution
from .positive_numbers import Dirichlet
from .real_numbers import Flat
from .records import (
    Prior,
    PriorLike,
    finite_numbers,
    no_numbers,
    tensor_of,
)
from .units import InUnitsOfData

V = TypeVar("V")
OWN = f"{__package__}."
#: priors that may hold a distribution of the user
OF_USERS = (FromDistribution, InUnitsOfData)


@dataclass(frozen=True)
class Site:
    """One named quantity of a model.

    Attributes:
        prior: Its prior, or the number that fixes it.
        shape: The shape of its event.
        positive: Whether it must be positive.
        start: The starting value of a search; None: chosen from the prior.
    """

    prior: PriorLike
    shape: tuple[int, ...] = ()
    positive: bool = False
    start: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def fixed(self) -> bool:
        """Whether a number fixes it."""
        return not isinstance(self.prior, Prior)

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        """Return the Pyro distribution of the event, with the dtype and device of ``like``."""
        prior = self.prior
        if isinstance(prior, InUnitsOfData):
            prior = prior.prior
        assert isinstance(prior, Prior)
        if isinstance(prior, Dirichlet):
            return prior.distribution(like, self.shape[-1])
        one: Any
        if isinstance(prior, Flat):
            one = prior.distribution(like, self.positive)
        else:
            one = prior.distribution(like)
        return one.expand(torch.Size(self.shape)).to_event(len(self.shape))


@dataclass(frozen=True)
class Param:
    """One named tensor that is optimised rather than inferred.

    Attributes:
        value: The starting value.
        trained: Whether it is optimised. If not (buffers of a network), it is named and stored
            like the others, and gets no gradient.
        constraint: The support.
        of_network: Whether it belongs to a neural network.
        fixed: True: it has no prior and is not drawn.
    """

    value: Tensor = field(repr=False, compare=False)
    trained: bool = True
    constraint: constraints.Constraint = field(default=constraints.real, repr=False, compare=False)
    of_network: bool = False
    fixed = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(self.value.shape)


def site(
    name: str,
    prior: PriorLike,
    shape: tuple[int, ...] = (),
    positive: bool = False,
    zero: bool = False,
) -> Site:
    """Return a Site whose prior or number is checked.

    Args:
        name: The name of the quantity, for error messages.
        prior: A prior, one number, or one number per entry along the last axis.
        shape: The shape of the event.
        positive: Whether the quantity must be positive.
        zero: Whether a positive quantity may also be fixed to 0.

    Raises:
        SettingError: If the prior or number can give values that the quantity cannot take.
    """
    if isinstance(prior, Prior):
        own = prior.prior if isinstance(prior, InUnitsOfData) else prior
        for f in fields(cast(Any, own)):
            value = getattr(own, f.name)
            if isinstance(value, tuple) and (not shape or len(value) != shape[-1]):
                _refuse_length(f"{f.name} of the prior of {name}", value, shape)
        size = own.entries if isinstance(own, FromDistribution) else None
        if size is not None and (not shape or size != shape[-1]):
            _refuse_length(f"the prior of {name}", (0.0,) * size, shape)
        if positive and not prior.positive and not isinstance(own, Flat):
            do = "use a prior whose support is positive: LogNormal, Gamma, HalfNormal or Flat"
            raise SettingError(f"a prior on positive numbers for {name}", repr(prior), do)
        return Site(prior, shape, positive)
    numbers = finite_numbers(prior)
    if not numbers:
        raise no_numbers(prior, name)
    if positive and any(v < 0 or (v == 0 and not zero) for v in numbers):
        raise _not_positive(name, prior, zero)
    if isinstance(prior, tuple) and (not shape or len(prior) != shape[-1]):
        _refuse_length(name, prior, shape)
    return Site(prior, shape, positive)


def refuse_negative(name: str, given: Any) -> None:
    """Refuse a number below 0 or a text, as it is typed, for a quantity that is positive.

    Args:
        name: The name of the quantity, for error messages.
        given: A number, one number per entry, or anything else, which is not checked here.

    Raises:
        SettingError: If a number is negative, or the quantity is a text.
    """
    if isinstance(given, str):
        raise no_numbers(given, name)
    if any(number < 0 for number in finite_numbers(given)):
        raise _not_positive(name, given, False)


def _not_positive(name: str, given: Any, zero: bool) -> SettingError:
    wanted, do = "a positive number", "fix it above 0, or give it a prior"
    if zero:
        wanted, do = "a number of at least 0", "fix it at 0 or above, or give it a prior"
    return SettingError(f"{wanted} for {name}", repr(given), do)


def _refuse_length(name: str, value: tuple[float, ...], shape: tuple[int, ...]) -> None:
    wanted = "one number"
    if shape:
        wanted = f"one number, or {shape[-1]} (one per entry),"
    do = "write one number, or a prior"
    if name.endswith("lengthscale"):
        do = "wrap the kernel in ARD, or write one number"
    raise SettingError(f"{wanted} for {name}", counted(len(value), "number"), do)


def draw(sites: Mapping[str, Site | Param], like: Tensor) -> dict[str, Tensor]:
    """Run one ``pyro.sample`` per site that has a prior, and one ``pyro.param`` per Param.

    Sites that are fixed to a number are left out: ``value_of`` supplies them.

    Args:
        sites: ``{name: site}``.
        like: A tensor with the dtype and the device of the draws.

    Returns:
        ``{name: value}``.
    """
    values = {}
    for name, s in sites.items():
        if isinstance(s, Param):
            values[name] = _param(name, s, like)
        elif isinstance(s.prior, Prior):
            values[name] = pyro.sample(name, law_of(s, like))
    return values


def law_of(s: Site, like: Tensor) -> TorchDistributionMixin:
    """Return ``s.distribution(like)``; equal sites share it where the prior is of this library."""
    own = type(s.prior).__module__.startswith(OWN) and not isinstance(s.prior, OF_USERS)
    # autograd takes no tensor that was made in inference mode
    if own and not torch.is_inference_mode_enabled():
        return _made(s, like.dtype, like.device, Distribution._validate_args)
    return s.distribution(like)


@lru_cache(maxsize=256)
def _made(
    s: Site, dtype: torch.dtype, device: torch.device, validates: bool
) -> TorchDistributionMixin:
    """Return the distribution of a site, which equal sites of other fits share.

    A distribution keeps whether torch validated values when it was made.
    """
    return s.distribution(torch.empty((), dtype=dtype, device=device))


def _param(name: str, p: Param, like: Tensor) -> Tensor:
    """Return the value in the param store, which starts as a copy of the recipe's."""
    value = pyro.param(name, p.value.detach().clone().to(like), constraint=p.constraint)
    if p.trained:
        return value
    return value.detach()


def value_of(theta: Mapping[str, Tensor], name: str, prior: PriorLike, like: Tensor) -> Tensor:
    """Return the value of a site: that in ``theta``, or the number that fixes it.

    Raises:
        SettingError: If there is neither.
    """
    if name in theta:
        return theta[name]
    if isinstance(prior, Prior):
        got = f"only {sorted(theta)}"
        raise SettingError(f"a value for {name} in theta", got, f"add {name!r} to theta")
    return tensor_of(prior if isinstance(prior, tuple) else float(prior), like)


def prefixed(prefix: str, values: Mapping[str, V]) -> dict[str, V]:
    """Return what belongs to each name, such as a site, under ``prefix.name``."""
    return {f"{prefix}.{name}": value for name, value in values.items()}


def under(prefix: str, theta: Mapping[str, V]) -> dict[str, V]:
    """Return the entries of theta whose names start with ``prefix.``, without the prefix."""
    head = prefix + "."
    return {name[len(head) :]: value for name, value in theta.items() if name.startswith(head)}
