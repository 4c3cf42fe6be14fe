"""Units: what stands in the units of the data, and the same on the scale that a model sees.

A plain number is in the units of the data, and so is a prior inside ``InUnitsOfData``; any other prior is on the scale of the
model, where ``fit`` has standardised X and y. ``moved`` takes a number or a prior from the one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ..errors import SettingError
from .records import (
    Dirichlet,
    Exponential,
    Flat,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InUnitsOfData,
    InverseGamma,
    LogNormal,
    Normal,
    Number,
    Prior,
    PriorLike,
    StudentT,
    Uniform,
)


def power(base: float, exponent: float) -> float:
    """base ** exponent; infinity where no float holds it."""
    try:
        return base**exponent
    except OverflowError:
        return math.inf


def in_units_of_data(prior: object) -> bool:
    """Whether it is a number, one number an entry, or a prior inside ``InUnitsOfData``."""
    return isinstance(prior, InUnitsOfData) or (prior is not None and not isinstance(prior, Prior))


def moved(
    prior: PriorLike, factor: Number = 1.0, shift: Number = 0.0, what: str = "it"
) -> PriorLike:
    """factor * value + shift, where ``prior`` is in the units of the data; any other prior as it is. factor > 0.

    Raises:
        SettingError: if there is no such law among the priors, or no float holds the number.
    """
    if isinstance(prior, Prior) and not isinstance(prior, InUnitsOfData):
        return prior
    given = prior.prior if isinstance(prior, InUnitsOfData) else prior
    if isinstance(given, Prior):
        if any(math.isinf(f) or f == 0 for f in entries(factor)):
            raise _out_of_range(prior, what)
        return _law(given, factor, shift, what)
    found = affine(given, factor, shift)
    if any(math.isinf(v) for v in entries(found)) or (
        any(entries(given)) and shift == 0.0 and not any(entries(found))
    ):
        raise _out_of_range(prior, what)
    return found


def entries(value: Number) -> tuple[float, ...]:
    """The numbers that it is: one, or one per entry."""
    return value if isinstance(value, tuple) else (value,)


def _out_of_range(prior: PriorLike, what: str) -> SettingError:
    do = "give the data in a unit nearer to 1"
    return SettingError(f"{what} that a float holds on the standardised scale", repr(prior), do)


def affine(value: Number, factor: Number = 1.0, shift: Number = 0.0) -> Number:
    """factor * value + shift, entry by entry where one of them is a tuple."""
    return _each(
        lambda v, f, s: v if (f, s) == (1.0, 0.0) else _line(v, f, s), value, factor, shift
    )


def _line(value: float, factor: float, shift: float) -> float:
    if value == 0 and math.isinf(factor):
        return shift
    return factor * value + shift


def _each(rule: Callable[..., float], *values: Number) -> Number:
    """One number where all are, or where all entries come out alike."""
    lengths = {len(v) for v in values if isinstance(v, tuple)}
    if not lengths:
        return rule(*values)
    if len(lengths) > 1:
        raise SettingError(
            "as many numbers as entries",
            " and ".join(map(str, sorted(lengths))),
            "give one for each",
        )
    size = lengths.pop()
    rows = zip(*(v if isinstance(v, tuple) else (v,) * size for v in values), strict=True)
    found = tuple(rule(*row) for row in rows)
    return found[0] if len(set(found)) == 1 else found


def _law(prior: Prior, factor: Number, shift: Number, what: str) -> Prior:
    """The law of factor * value + shift."""
    unmoved = affine(1.0, factor) == 1.0 and affine(0.0, 1.0, shift) == 0.0
    if unmoved or isinstance(prior, Dirichlet):  # proportions have no unit
        return prior
    if isinstance(prior, Normal | StudentT):
        return replace(
            prior, loc=affine(prior.loc, factor, shift), scale=affine(prior.scale, factor)
        )
    if isinstance(prior, Uniform):
        return Uniform(affine(prior.low, factor, shift), affine(prior.high, factor, shift))
    if isinstance(prior, Flat):
        return (
            prior
            if prior.start is None
            else replace(prior, start=affine(prior.start, factor, shift))
        )
    if affine(0.0, 1.0, shift) == 0.0:
        if isinstance(prior, LogNormal):
            return replace(prior, loc=_each(lambda v, f: v + math.log(f), prior.loc, factor))
        if isinstance(prior, HalfNormal | HalfCauchy):
            return replace(prior, scale=affine(prior.scale, factor))
        if isinstance(prior, InverseGamma):
            return replace(prior, rate=affine(prior.rate, factor))
        if isinstance(prior, Gamma | Exponential):
            return replace(prior, rate=_each(lambda v, f: v / f, prior.rate, factor))
    do = "use Normal, StudentT, Uniform or Flat there, or pass standardise=False to fit"
    raise SettingError(
        f"a prior for {what} that has an equivalent on the standardised scale", repr(prior), do
    )
