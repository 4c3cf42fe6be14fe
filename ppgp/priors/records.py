"""Priors as frozen records: a record builds its Pyro distribution with the dtype and device of given data.

A number in place of a prior fixes the value, in the units of the data; a prior is on the scale that the model sees, unless it
stands inside ``InUnitsOfData``. A number of a prior may be a tuple, one for each entry along the last axis of the site. ``Flat``
gives maximum likelihood. Records compare, print and store as plain data; nothing here samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import constraints

from ..errors import SettingError

__all__ = [
    "Dirichlet",
    "Exponential",
    "Flat",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InUnitsOfData",
    "InverseGamma",
    "Lengthscale",
    "LogNormal",
    "Normal",
    "StudentT",
    "Uniform",
]

if TYPE_CHECKING:
    Number: TypeAlias = (
        float | tuple[float, ...]
    )  # one for all entries, or one for each along the last axis
else:  # numbers of NumPy and tensors without axes are taken too, and become Python's
    Number = float | int | np.generic | np.ndarray | Tensor | tuple


class Prior:
    """The interface: ``distribution(like)`` and whether draws are positive."""

    positive: bool = False

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        """The Pyro distribution of one value, with the dtype and device of ``like``."""
        raise NotImplementedError

    def _numbers(self, like: Tensor) -> list[Any]:
        return [tensor_of(getattr(self, f.name), like) for f in fields(self)]  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            free = f.name in ("loc", "low", "high")
            if not all(is_number(v) and (v > 0 or free) for v in entries(value)):
                wanted = "a finite number" if free else "a positive number"
                raise SettingError(
                    f"{wanted} as {f.name} of {type(self).__name__}", repr(value), "change it"
                )


if TYPE_CHECKING:
    PriorLike: TypeAlias = Prior | float | int | tuple[float, ...]
else:
    PriorLike = Prior | Number


def plain(value: Any) -> Any:
    """A number of NumPy or a tensor without axes as Python's, in tuples too; anything else as it is."""
    if isinstance(value, tuple):
        found = tuple(map(plain, value))
        return value if all(a is b for a, b in zip(found, value, strict=True)) else found
    if isinstance(value, np.generic | np.ndarray | Tensor) and value.ndim == 0:
        return value.item()
    return value


def with_plain_numbers(record: Any) -> None:
    """Put Python's numbers in the fields of a frozen record, which then compares, prints and is stored as if given so."""
    for f in fields(record):
        value = getattr(record, f.name)
        found = plain(value)
        if found is not value:
            object.__setattr__(record, f.name, found)


def entries(value: object) -> tuple[Any, ...]:
    """The numbers of a field: one, or those of a tuple that is not empty."""
    return value if isinstance(value, tuple) and value else (value,)


def single(value: Number) -> float:
    """The number that serves all entries.

    Raises:
        SettingError: if there is one for each.
    """
    if isinstance(value, tuple):
        raise SettingError(
            "one number for all entries here",
            f"{len(value)}, one for each",
            "use NUTS, or one number",
        )
    return value


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def tensor_of(values: Number, like: Tensor) -> Tensor:
    """Numbers with the dtype and device of ``like``: [], or [entries]."""
    if isinstance(values, tuple):
        return torch.tensor(values, dtype=like.dtype, device=like.device)
    return torch.full((), values, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class InUnitsOfData(Prior):
    """The prior in the units of the data, as a plain number is; a prior without it is on the scale that the model sees.

    ``Periodic(period=InUnitsOfData(LogNormal(math.log(365.0), 0.1)))`` is a period of about 365 in the units of X. ``fit`` puts the
    same law on the scale of the model. A program run without ``fit`` has one scale alone, and the law as it is written.

    Raises:
        SettingError: if it is not given a prior.
    """

    prior: Any

    def __post_init__(self) -> None:
        if isinstance(self.prior, InUnitsOfData) or not isinstance(self.prior, Prior):
            do = "pass a number by itself: it is in the units of the data already"
            raise SettingError("a prior in InUnitsOfData", repr(self.prior), do)

    @property
    def positive(self) -> bool:  # type: ignore[override]
        return self.prior.positive

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return self.prior.distribution(like)


def bare(prior: Any) -> Any:
    """The prior, out of its ``InUnitsOfData``."""
    return prior.prior if isinstance(prior, InUnitsOfData) else prior


@dataclass(frozen=True)
class Normal(Prior):
    """Normal with mean ``loc`` and standard deviation ``scale``."""

    loc: Number = 0.0
    scale: Number = 1.0

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.Normal(*self._numbers(like))


@dataclass(frozen=True)
class StudentT(Prior):
    """Student's t with ``df`` degrees of freedom, location ``loc`` and scale ``scale``."""

    df: Number = 3.0
    loc: Number = 0.0
    scale: Number = 1.0

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.StudentT(*self._numbers(like))


@dataclass(frozen=True)
class LogNormal(Prior):
    """exp of a Normal(loc, scale)."""

    loc: Number = 0.0
    scale: Number = 1.0
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.LogNormal(*self._numbers(like))


@dataclass(frozen=True)
class Lengthscale(LogNormal):
    """The kernels' default: LogNormal(loc, scale), and LogNormal(loc + log(d) / 2, scale) for each column of ``ARD`` over d.

    Two rows of d standardised columns are sqrt(2 d) apart on average. With a median of 1 in each column, rows of many
    columns would all be strangers, and the data would have to argue with the prior once a column; a median of sqrt(d)
    leaves the distance of two rows, in lengthscales, as it is for one column. One lengthscale for all columns has one
    such argument, which few rows settle, and keeps the median of 1. Hvarfner, Hellsten & Nardi (2024) have the same
    growth. Features of a network (``Deep``) lie in a ball whatever their number: there the median is 1.

    Args:
        columns: d; ``ARD`` fills it in.
    """

    columns: int = 1

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        loc, scale, columns = self._numbers(like)
        return dist.LogNormal(loc + 0.5 * columns.log(), scale)


def per_column(prior: Any, d: int) -> Any:
    """The prior of each of d lengthscales: ``Lengthscale`` grows with d, any other stays as it is."""
    return replace(prior, columns=d) if isinstance(prior, Lengthscale) else prior


@dataclass(frozen=True)
class Gamma(Prior):
    """Gamma with mean shape / rate."""

    shape: Number
    rate: Number
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.Gamma(*self._numbers(like))


@dataclass(frozen=True)
class InverseGamma(Prior):
    """1 / Gamma(shape, rate)."""

    shape: Number
    rate: Number
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.InverseGamma(*self._numbers(like))


@dataclass(frozen=True)
class Exponential(Prior):
    """Exponential with mean 1 / rate."""

    rate: Number = 1.0
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.Exponential(*self._numbers(like))


@dataclass(frozen=True)
class HalfNormal(Prior):
    """The absolute value of a Normal(0, scale)."""

    scale: Number = 1.0
    positive = True

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.HalfNormal(*self._numbers(like))


@dataclass(frozen=True)
class HalfCauchy(Prior):
    """The absolute value of a Cauchy(0, scale)."""

    scale: Number = 1.0
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

    low: Number
    high: Number

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self._numbers(torch.zeros((), dtype=torch.float64))
        if not bool((low < high).all()):
            raise SettingError(
                "low < high in Uniform", f"low={self.low}, high={self.high}", "swap or widen them"
            )

    @property
    def positive(self) -> bool:  # type: ignore[override]
        return min(entries(self.low)) >= 0

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return dist.Uniform(*self._numbers(like))


@dataclass(frozen=True)
class Flat(Prior):
    """No prior: log density 0 everywhere on the site's support, so that MAP is maximum likelihood.

    ``start`` is what a draw returns (an optimiser's starting value); by default 1 on positive sites, 0 elsewhere.
    The posterior is proper only where the data make it so.
    """

    start: Number | None = None

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        if self.start is not None and not all(map(is_number, entries(self.start))):
            raise SettingError("a finite number as start of Flat", repr(self.start), "change it")

    def distribution(self, like: Tensor, positive: bool = False) -> TorchDistributionMixin:
        start = self.start if self.start is not None else (1.0 if positive else 0.0)
        support = constraints.positive if positive else constraints.real
        return FlatDistribution(tensor_of(start, like), support)


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
