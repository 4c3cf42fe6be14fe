"""Priors as frozen records: a record builds its Pyro distribution with the dtype and device of given data.

A number in place of a prior fixes the value. ``Flat`` gives maximum likelihood. Records compare, print and
store as plain data; nothing here samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, TypeVar

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import constraints

from .errors import SettingError

__all__ = [
    "Dirichlet",
    "Exponential",
    "Flat",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InverseGamma",
    "LogNormal",
    "Normal",
    "StudentT",
    "Uniform",
]


class Prior:
    """The interface: ``distribution(like)`` and whether draws are positive."""

    positive: bool = False

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        """The Pyro distribution of one value, with the dtype and device of ``like``."""
        raise NotImplementedError

    def _numbers(self, like: Tensor) -> list[Any]:
        return [torch.full((), getattr(self, f.name), dtype=like.dtype, device=like.device) for f in fields(self)]  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            free = f.name in ("loc", "low", "high")
            if not isinstance(value, int | float) or not math.isfinite(value) or (value <= 0 and not free):
                wanted = "a finite number" if free else "a positive number"
                raise SettingError(f"{wanted} as {f.name} of {type(self).__name__}", repr(value), "change it")


PriorLike: TypeAlias = Prior | float | int
SiteOrParam = TypeVar("SiteOrParam", bound="Site | Param")


@dataclass(frozen=True)
class Normal(Prior):
    """Normal with mean ``loc`` and standard deviation ``scale``."""

    loc: float = 0.0
    scale: float = 1.0

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.Normal(*self._numbers(like))


@dataclass(frozen=True)
class StudentT(Prior):
    """Student's t with ``df`` degrees of freedom, location ``loc`` and scale ``scale``."""

    df: float = 3.0
    loc: float = 0.0
    scale: float = 1.0

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.StudentT(*self._numbers(like))


@dataclass(frozen=True)
class LogNormal(Prior):
    """exp of a Normal(loc, scale)."""

    loc: float = 0.0
    scale: float = 1.0
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.LogNormal(*self._numbers(like))


@dataclass(frozen=True)
class Gamma(Prior):
    """Gamma with mean shape / rate."""

    shape: float
    rate: float
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.Gamma(*self._numbers(like))


@dataclass(frozen=True)
class InverseGamma(Prior):
    """1 / Gamma(shape, rate)."""

    shape: float
    rate: float
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.InverseGamma(*self._numbers(like))


@dataclass(frozen=True)
class Exponential(Prior):
    """Exponential with mean 1 / rate."""

    rate: float = 1.0
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.Exponential(*self._numbers(like))


@dataclass(frozen=True)
class HalfNormal(Prior):
    """The absolute value of a Normal(0, scale)."""

    scale: float = 1.0
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.HalfNormal(*self._numbers(like))


@dataclass(frozen=True)
class HalfCauchy(Prior):
    """The absolute value of a Cauchy(0, scale)."""

    scale: float = 1.0
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.HalfCauchy(*self._numbers(like))


@dataclass(frozen=True)
class Dirichlet(Prior):
    """Symmetric Dirichlet of proportions that sum to 1; ``Site`` gives how many there are."""

    concentration: float = 1.0
    positive = True

    def distribution(self, like: Tensor, size: int = 2) -> TorchDistributionMixin:
        return dist.Dirichlet(self._numbers(like)[0].expand(size).clone())


@dataclass(frozen=True)
class Uniform(Prior):
    """Uniform between ``low`` and ``high``."""

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise SettingError("low < high in Uniform", f"low={self.low}, high={self.high}", "swap or widen them")

    @property
    def positive(self) -> bool:  # type: ignore[override]
        return self.low >= 0

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.Uniform(*self._numbers(like))


@dataclass(frozen=True)
class Flat(Prior):
    """No prior: log density 0 everywhere on the site's support, so that MAP is maximum likelihood.

    ``start`` is what a draw returns (an optimiser's starting value); by default 1 on positive sites, 0 elsewhere.
    The posterior is proper only where the data make it so.
    """

    start: float | None = None

    def __post_init__(self) -> None:
        if self.start is not None and not math.isfinite(self.start):
            raise SettingError("a finite number as start of Flat", repr(self.start), "change it")

    def distribution(self, like: Tensor, positive: bool = False) -> TorchDistributionMixin:
        start = self.start if self.start is not None else (1.0 if positive else 0.0)
        support = constraints.positive if positive else constraints.real
        return FlatDistribution(torch.full((), start, dtype=like.dtype, device=like.device), support)


class FlatDistribution(dist.TorchDistribution):
    """Log density 0 on its support; every draw is the starting value. Unlike Pyro's ImproperUniform it can be drawn from."""

    arg_constraints = {}  # type: ignore[assignment]
    has_rsample = True
    improper = True  # no law: its draws are a start, not a sample

    def __init__(self, start: Tensor, support: constraints.Constraint) -> None:
        self.start, self._support = start, support
        super().__init__(batch_shape=start.shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        return self._support

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> FlatDistribution:
        return FlatDistribution(self.start.expand(torch.Size(batch_shape)), self._support)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.start.expand(torch.Size(sample_shape) + self.batch_shape).clone()

    def log_prob(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value)


@dataclass(frozen=True)
class Site:
    """One named quantity of a model: its prior (or fixed number), the shape of its event, whether it must be positive."""

    prior: PriorLike
    shape: tuple[int, ...] = ()
    positive: bool = False
    start: Tensor | None = field(default=None, repr=False, compare=False)  # where a search begins; None: what the prior says

    @property
    def fixed(self) -> bool:
        return not isinstance(self.prior, Prior)

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        assert isinstance(self.prior, Prior)
        if isinstance(self.prior, Dirichlet):
            return self.prior.distribution(like, self.shape[-1])
        if isinstance(self.prior, Flat):
            one = self.prior.distribution(like, positive=self.positive)
        else:
            one = self.prior.distribution(like)
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


def site(name: str, prior: PriorLike, shape: tuple[int, ...] = (), positive: bool = False, zero: bool = False) -> Site:
    """A checked Site: a positive quantity needs a prior on positive numbers, or a positive number (or 0, with ``zero``).

    Raises:
        SettingError: if the prior can give values that the quantity cannot take.
    """
    if isinstance(prior, Prior):
        if positive and not prior.positive and not isinstance(prior, Flat):
            raise SettingError(
                f"a prior on positive numbers for {name}", repr(prior), "use LogNormal, Gamma, HalfNormal or Flat"
            )
    elif isinstance(prior, bool) or not isinstance(prior, int | float) or not math.isfinite(prior):
        raise SettingError(f"a prior or a finite number for {name}", repr(prior), "see ppgp.priors")
    elif positive and (prior < 0 or (prior == 0 and not zero)):
        raise SettingError(f"a positive number for {name}", repr(prior), "fix it above 0, or give it a prior")
    return Site(prior, shape, positive)


def value_of(theta: Mapping[str, Tensor], name: str, prior: PriorLike, like: Tensor) -> Tensor:
    """The value of a site: from ``theta``, or the number that the record fixes it to.

    Raises:
        SettingError: if it is in neither place.
    """
    if name in theta:
        return theta[name]
    if isinstance(prior, Prior):
        raise SettingError(f"a value for {name} in theta", f"only {sorted(theta)}", f"add {name!r} to theta")
    return torch.full((), float(prior), dtype=like.dtype, device=like.device)


def prefixed(prefix: str, sites: Mapping[str, SiteOrParam]) -> dict[str, SiteOrParam]:
    """The same sites under ``prefix.name``."""
    return {f"{prefix}.{name}": s for name, s in sites.items()}


def under(prefix: str, theta: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of theta that stands under ``prefix.``, with the prefix taken off."""
    head = prefix + "."
    return {name[len(head) :]: value for name, value in theta.items() if name.startswith(head)}
