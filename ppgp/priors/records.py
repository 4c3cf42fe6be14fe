"""Priors as frozen records, which build Pyro distributions with the dtype and device of given data.

A number in place of a prior fixes the value, in the units of the data. A prior is on the scale that
the model sees, unless it is inside ``InUnitsOfData``. A parameter of a prior may be a tuple, with
one number per entry along the last axis of the site. ``Flat`` gives maximum likelihood. Records
compare, print and are stored as plain data; nothing here samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..errors import NamedArguments, SettingError
from ..overrides import computed
from .distributions import FlatDistribution, LogUniformDistribution

__all__ = [
    "Dirichlet",
    "Exponential",
    "Flat",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InverseGamma",
    "Lengthscale",
    "LogNormal",
    "LogUniform",
    "Normal",
    "StudentT",
    "Uniform",
]

#: one number for all entries, or one per entry along the last axis
if TYPE_CHECKING:
    Number: TypeAlias = float | tuple[float, ...]
else:  # NumPy's numbers and tensors without axes are accepted too, and become Python's
    Number = float | int | np.generic | np.ndarray | Tensor | tuple


class Prior(NamedArguments):
    """The interface of priors.

    Attributes:
        family: The class of its Pyro distribution, where the fields are the parameters; another
            prior defines ``distribution``.
        positive: Whether all draws are positive.
    """

    family: ClassVar[Callable[..., TorchDistributionMixin]]
    positive: bool = False

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        """Return the Pyro distribution of one value, with the dtype and device of ``like``."""
        return type(self).family(*self._numbers(like))

    def _numbers(self, like: Tensor) -> list[Any]:
        """Return the parameters as tensors, in the order of the fields."""
        return [tensor_of(getattr(self, f.name), like) for f in fields(cast(Any, self))]

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        for f in fields(cast(Any, self)):
            numbers = finite_numbers(getattr(self, f.name))
            free = f.name in ("loc", "low", "high")
            if not numbers or not (free or min(numbers) > 0):
                wanted = "a finite number" if free else "a positive number"
                where = f"{f.name} of {type(self).__name__}"
                raise SettingError(f"{wanted} as {where}", repr(getattr(self, f.name)), "change it")


if TYPE_CHECKING:
    PriorLike: TypeAlias = Prior | float | int | tuple[float, ...]
else:  # a distribution of PyTorch or Pyro is accepted too, and becomes a Prior
    PriorLike = Prior | Number | Distribution


def plain(value: Any) -> Any:
    """Return NumPy's numbers and tensors without axes as Python numbers, in tuples too.

    Any other value is returned as it is.
    """
    if isinstance(value, tuple):
        numbers = tuple(map(plain, value))
        unchanged = all(a is b for a, b in zip(numbers, value, strict=True))
        return value if unchanged else numbers
    if isinstance(value, np.generic | np.ndarray | Tensor) and value.ndim == 0:
        return value.item()
    return value


PACKAGE = __name__.partition(".")[0]


def with_plain_numbers(record: Any) -> None:
    """Convert the numbers in the fields of a frozen record to Python's, in place.

    The record then compares, prints and is stored as if Python's numbers had been given.

    Raises:
        SettingError: If a field is a class of this library in place of an instance.
    """
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, type) and value.__module__.partition(".")[0] == PACKAGE:
            wanted = f"an instance as {f.name} of {type(record).__name__}"
            raise SettingError(
                wanted, f"the class {value.__name__}", f"call it: {value.__name__}()"
            )
        number = plain(value)
        if number is not value:
            object.__setattr__(record, f.name, number)


def entries(value: object) -> tuple[Any, ...]:
    """Return the numbers of a field as a tuple; an empty tuple is returned inside a tuple."""
    return value if isinstance(value, tuple) and value else (value,)


def single(value: Number) -> float:
    """Return the number that holds for all entries.

    Raises:
        SettingError: If there is one number per entry.
    """
    if isinstance(value, tuple):
        got = f"{len(value)}, one per entry"
        raise SettingError("one number for all entries here", got, "use NUTS, or one number")
    return value


def finite_numbers(value: object) -> tuple[float, ...]:
    """Return a finite number, or a tuple of them, as a tuple; () for anything else, bools too."""
    numbers: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    for v in numbers:
        if not isinstance(v, int | float) or isinstance(v, bool) or not math.isfinite(v):
            return ()
    return numbers


def check_numbers(value: object, what: str) -> tuple[float, ...]:
    """Return a finite number, or a tuple of them, as a tuple.

    Raises:
        SettingError: If the value is neither.
    """
    numbers = finite_numbers(value)
    if not numbers:
        do = (
            "write a number such as 2.0, a tuple with one per entry, or a prior such as "
            "LogNormal(0, 1)"
        )
        if isinstance(value, type):
            do = f"call it: {value.__name__}(...)"
        raise SettingError(f"a prior or a finite number for {what}", repr(value), do)
    return numbers


def tensor_of(values: Number, like: Tensor) -> Tensor:
    """Return numbers as a tensor [] or [entries], with the dtype and device of ``like``."""
    if isinstance(values, tuple):
        return torch.tensor(values, dtype=like.dtype, device=like.device)
    return torch.full((), values, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Normal(Prior):
    """Normal with mean ``loc`` and standard deviation ``scale``."""

    loc: Number = 0.0
    scale: Number = 1.0
    family = dist.Normal


@dataclass(frozen=True)
class StudentT(Prior):
    """Student's t with ``df`` degrees of freedom, location ``loc`` and scale ``scale``."""

    df: Number = 3.0
    loc: Number = 0.0
    scale: Number = 1.0
    family = dist.StudentT


@dataclass(frozen=True)
class LogNormal(Prior):
    """exp of a Normal(loc, scale)."""

    loc: Number = 0.0
    scale: Number = 1.0
    family = dist.LogNormal
    positive = True


@dataclass(frozen=True)
class Lengthscale(LogNormal):
    """The default prior of lengthscales, LogNormal(loc + log(columns) / 2, scale).

    A single lengthscale for all columns has the median 1 (``columns=1``); each of the d
    lengthscales of ``ARD`` has the median sqrt(d).

    Two rows of d standardised columns are sqrt(2 d) apart on average. With a median of 1 in each of
    many columns all rows would be far apart, and the data would have to correct the prior in every
    column; a median of sqrt(d) leaves the distance of two rows, in lengthscales, as it is for one
    column. A single lengthscale is one quantity that few rows determine. Hvarfner, Hellsten & Nardi
    (2024) use the same growth with d. Features of a network (``Deep``) lie in a ball whatever their
    number, so the median is 1 there.

    Args:
        loc: The mean of the logarithm for one column.
        scale: The standard deviation of the logarithm.
        columns: d; ``ARD`` sets it.
    """

    columns: int = 1

    def _numbers(self, like: Tensor) -> list[Any]:
        loc, scale, columns = super()._numbers(like)
        return [loc + 0.5 * columns.log(), scale]


def per_column(prior: Any, d: int) -> Any:
    """Return the prior of each of d lengthscales: only ``Lengthscale`` depends on d."""
    return replace(prior, columns=d) if isinstance(prior, Lengthscale) else prior


@dataclass(frozen=True)
class Gamma(Prior):
    """Gamma with mean shape / rate."""

    shape: Number
    rate: Number
    family = dist.Gamma
    positive = True


@dataclass(frozen=True)
class InverseGamma(Prior):
    """1 / Gamma(shape, rate)."""

    shape: Number
    rate: Number
    family = dist.InverseGamma
    positive = True


@dataclass(frozen=True)
class Exponential(Prior):
    """Exponential with mean 1 / rate."""

    rate: Number = 1.0
    family = dist.Exponential
    positive = True


@dataclass(frozen=True)
class HalfNormal(Prior):
    """The absolute value of a Normal(0, scale)."""

    scale: Number = 1.0
    family = dist.HalfNormal
    positive = True


@dataclass(frozen=True)
class HalfCauchy(Prior):
    """The absolute value of a Cauchy(0, scale)."""

    scale: Number = 1.0
    family = dist.HalfCauchy
    positive = True


@dataclass(frozen=True)
class Dirichlet(Prior):
    """Symmetric Dirichlet of proportions that sum to 1; their number is that of the ``Site``."""

    concentration: float = 1.0
    positive = True

    def distribution(self, like: Tensor, size: int = 2) -> TorchDistributionMixin:
        return dist.Dirichlet(self._numbers(like)[0].expand(size).clone())


@dataclass(frozen=True)
class Uniform(Prior):
    """Uniform between ``low`` and ``high``."""

    low: Number
    high: Number
    family = dist.Uniform

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self._numbers(torch.zeros((), dtype=torch.float64))
        if not bool((low < high).all()):
            got = f"low={self.low}, high={self.high}"
            raise SettingError("low < high in Uniform", got, "swap or widen them")

    def _positive(self) -> bool:
        return min(entries(self.low)) >= 0

    positive = computed(_positive)


@dataclass(frozen=True)
class LogUniform(Prior):
    """exp of a Uniform(log(low), log(high)), with 0 < low < high: no magnitude is preferred."""

    low: Number
    high: Number
    family = LogUniformDistribution
    positive = True

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self._numbers(torch.zeros((), dtype=torch.float64))
        if not bool(((low > 0) & (low < high)).all()):
            got = f"low={self.low}, high={self.high}"
            raise SettingError("0 < low < high in LogUniform", got, "swap or widen them")


@dataclass(frozen=True)
class Flat(Prior):
    """A flat prior: log density 0 on the support of the site, so that MAP is maximum likelihood.

    The posterior is proper only if the data make it so.

    Args:
        start: The value that a draw returns, which is the starting value of an optimiser; by
            default 1 on positive sites and 0 elsewhere.
    """

    start: Number | None = None

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        if self.start is not None and not finite_numbers(self.start):
            raise SettingError("a finite number as start of Flat", repr(self.start), "change it")

    def distribution(self, like: Tensor, positive: bool = False) -> TorchDistributionMixin:
        start, support = 0.0, constraints.real
        if positive:
            start, support = 1.0, constraints.positive
        if self.start is not None:
            start = self.start
        return FlatDistribution(tensor_of(start, like), support)
