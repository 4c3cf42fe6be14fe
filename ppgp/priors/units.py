"""Conversion of numbers and priors from the units of the data to the scale that a model sees.

A plain number is in the units of the data, and so is a prior inside ``InUnitsOfData``. Any other
prior is on the scale of the model, for which ``fit`` has standardised X and y.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from ..display.overrides import computed
from ..errors import SettingError
from .from_distribution import with_plain_fields
from .positive_numbers import (
    Dirichlet,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    LogNormal,
    LogUniform,
)
from .real_numbers import Flat, Normal, StudentT, Uniform
from .records import Number, Prior, PriorLike, entries, finite_numbers, no_numbers


@dataclass(frozen=True)
class InUnitsOfData(Prior):
    """A prior in the units of the data, instead of the scale that the model sees.

    ``Periodic(period=InUnitsOfData(LogNormal(math.log(365.0), 0.1)))`` is a period of about 365 in
    the units of X. ``fit`` converts the prior to the scale of the model. A program that is run
    without ``fit`` has a single scale, and uses the prior as it is written.

    Args:
        prior: The prior. Its numbers may be tuples [entries], as elsewhere.

    Raises:
        SettingError: If it is not given a prior. ``fit`` raises it if no prior of this library is
            its equivalent on the standardised scale.
        UnknownArgument: If an argument has another name.

    Examples:
        A noise of about 9 in the units of y squared. The variance of y is 9 too, so that the median
        is 1 on the standardised scale:

        >>> import math
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> noise = priors.InUnitsOfData(priors.LogNormal(math.log(9.0), 0.5))
        >>> model = models.GLM(likelihoods.Gaussian(noise=noise))
        >>> data = ppgp.Dataset([[0.0], [1.0], [0.0], [1.0]], [-3.0, -3.0, 3.0, 3.0])
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> prior = posterior.model.likelihood.noise  # of the model, on the standardised scale
        >>> type(prior).__name__, round(prior.loc, 6), prior.scale
        ('LogNormal', 0.0, 0.5)
    """

    prior: Any

    def __post_init__(self) -> None:
        with_plain_fields(self)
        given = self.prior
        if isinstance(given, InUnitsOfData):
            got = f"InUnitsOfData({given!r})"
            raise SettingError("a prior in InUnitsOfData once", got, "leave one of them out")
        if not isinstance(given, Prior):
            do = "for example InUnitsOfData(LogNormal(0, 1))"
            if finite_numbers(given):
                do = "pass a number by itself: it is in the units of the data already"
            raise SettingError("a prior in InUnitsOfData", repr(given), do)

    def _positive(self) -> bool:
        return self.prior.positive

    positive = computed(_positive)

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return self.prior.distribution(like)


def bare(prior: Any) -> Any:
    """Return the prior without ``InUnitsOfData`` around it."""
    return prior.prior if isinstance(prior, InUnitsOfData) else prior


def power(base: float, exponent: float) -> float:
    """Return base ** exponent, or infinity on overflow."""
    try:
        return base**exponent
    except OverflowError:
        return math.inf


def in_units_of_data(prior: object) -> bool:
    """Whether it is a number, a tuple of numbers, or a prior inside ``InUnitsOfData``."""
    return isinstance(prior, InUnitsOfData) or (prior is not None and not isinstance(prior, Prior))


def rescaled(
    prior: PriorLike, factor: Number = 1.0, shift: Number = 0.0, what: str = "it"
) -> PriorLike:
    """Return the number or prior of factor * value + shift, if it is in the units of the data.

    A prior that is not inside ``InUnitsOfData`` is returned as it is.

    Args:
        prior: A number, one number per entry, or a prior.
        factor: A positive number, or one per entry.
        shift: A number, or one per entry.
        what: The name of the quantity, for error messages.

    Raises:
        SettingError: If no prior of this library has that distribution, or a number overflows.
    """
    if isinstance(prior, Prior) and not isinstance(prior, InUnitsOfData):
        return prior
    given = prior.prior if isinstance(prior, InUnitsOfData) else prior
    if isinstance(given, Prior):
        if any(math.isinf(f) or f == 0 for f in entries(factor)):
            raise _out_of_range(prior, what)
        return _transformed(given, factor, shift, what)
    if not finite_numbers(given):
        raise no_numbers(given, what)
    number = affine(given, factor, shift)
    overflow = any(math.isinf(v) for v in entries(number))
    underflow = any(entries(given)) and shift == 0.0 and not any(entries(number))
    if overflow or underflow:
        raise _out_of_range(prior, what)
    return number


def _out_of_range(prior: PriorLike, what: str) -> SettingError:
    do = "give the data in a unit nearer to 1"
    return SettingError(f"{what} that a float holds on the standardised scale", repr(prior), do)


def affine(value: Number, factor: Number = 1.0, shift: Number = 0.0) -> Number:
    """Return factor * value + shift, entry by entry if one of them is a tuple."""
    return _entrywise(_affine_number, value, factor, shift)


def _affine_number(value: float, factor: float, shift: float) -> float:
    if (factor, shift) == (1.0, 0.0):
        return value
    if value == 0 and math.isinf(factor):
        return shift
    return factor * value + shift


def _entrywise(function: Callable[..., float], *values: Number) -> Number:
    """Apply a function entry by entry; return one number if all entries of the result are equal.

    Raises:
        SettingError: If the values are tuples of different lengths.
    """
    lengths = {len(v) for v in values if isinstance(v, tuple)}
    if not lengths:
        return function(*values)
    if len(lengths) > 1:
        got = " and ".join(map(str, sorted(lengths)))
        raise SettingError("as many numbers as entries", got, "give one per entry")
    size = lengths.pop()
    columns = [v if isinstance(v, tuple) else (v,) * size for v in values]
    results = tuple(function(*row) for row in zip(*columns, strict=True))
    if len(set(results)) == 1:
        return results[0]
    return results


def _transformed(prior: Prior, factor: Number, shift: Number, what: str) -> Prior:
    """Return the prior of factor * value + shift.

    Raises:
        SettingError: If no prior of this library has that distribution.
    """
    shifted = affine(0.0, 1.0, shift) != 0.0
    scaled = affine(1.0, factor) != 1.0
    if not (scaled or shifted) or isinstance(prior, Dirichlet):  # proportions have no unit
        return prior
    transformed = _shifted_and_scaled(prior, factor, shift)
    if transformed is None and not shifted:
        transformed = _scaled(prior, factor)
    if transformed is None:
        wanted = f"a prior for {what} that has an equivalent on the standardised scale"
        families = "Normal, StudentT, Uniform or Flat" if shifted else "a member of ppgp.priors"
        do = f"use {families} there, or pass standardise=False to fit"
        raise SettingError(wanted, repr(prior), do)
    return transformed


def _shifted_and_scaled(prior: Prior, factor: Number, shift: Number) -> Prior | None:
    """Return the prior of factor * value + shift for a family that is closed under both."""
    if isinstance(prior, Normal | StudentT):
        loc, scale = affine(prior.loc, factor, shift), affine(prior.scale, factor)
        return replace(prior, loc=loc, scale=scale)
    if isinstance(prior, Uniform):
        return Uniform(affine(prior.low, factor, shift), affine(prior.high, factor, shift))
    if isinstance(prior, Flat):
        if prior.start is None:
            return prior
        return replace(prior, start=affine(prior.start, factor, shift))
    return None


def _scaled(prior: Prior, factor: Number) -> Prior | None:
    """Return the prior of factor * value for a family that is closed under scaling alone."""
    if isinstance(prior, LogNormal):
        return replace(prior, loc=_entrywise(lambda v, f: v + math.log(f), prior.loc, factor))
    if isinstance(prior, LogUniform):
        return LogUniform(affine(prior.low, factor), affine(prior.high, factor))
    if isinstance(prior, HalfNormal | HalfCauchy):
        return replace(prior, scale=affine(prior.scale, factor))
    if isinstance(prior, InverseGamma):
        return replace(prior, rate=affine(prior.rate, factor))
    if isinstance(prior, Gamma | Exponential):
        return replace(prior, rate=_entrywise(lambda v, f: v / f, prior.rate, factor))
    return None
