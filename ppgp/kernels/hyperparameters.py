"""Helpers of all kernels: their hyperparameters as fields of a record, with units and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from ..errors import SettingError, counted
from ..priors import Prior, in_units_of_data, rescaled
from .units import Factor, Units, power

R = TypeVar("R")

NO_UNIT = (0, 0)  # powers of y and of X


@runtime_checkable
class Hyperparameters(Protocol):
    """A record with hyperparameters as fields.

    Attributes:
        hyper: names of the fields that are hyperparameters.
        dimensions: ``{name: (power of y, power of X)}``; a name that is missing has no unit.
    """

    hyper: ClassVar[tuple[str, ...]]
    dimensions: ClassVar[Mapping[str, tuple[float, float]]]


def replaced(record: R, /, **changes: object) -> R:
    """Return a copy of a dataclass with other values in some of its fields."""
    original: Any = record
    return replace(original, **changes)


def numbers_in_units(record: Hyperparameters, units: Units, length: float) -> dict[str, Any]:
    """Return the fields that differ on the scale of a model, with their values there.

    Args:
        record: the kernel.
        units: the standardisation of the inputs and values.
        length: the number of units of X that make one unit of the model.
    """
    changed = {}
    for name in record.hyper:
        y, x = record.dimensions.get(name, NO_UNIT)
        before = getattr(record, name)
        after = rescaled(before, power(units.y_sd, -y) * power(length, -x), what=name)
        if after is not before:
            changed[name] = after
    return changed


def length_in_data_units(record: Hyperparameters) -> bool:
    """Whether some hyperparameter with a unit of X is given in the units of the data."""
    return any(
        record.dimensions.get(name, NO_UNIT)[1] and in_units_of_data(getattr(record, name))
        for name in record.hyper
    )


def level_has_prior(record: Hyperparameters) -> bool:
    """Whether some hyperparameter with a unit of y has a prior."""
    return any(
        record.dimensions.get(name, NO_UNIT)[0] and isinstance(getattr(record, name), Prior)
        for name in record.hyper
    )


def unit_factors(record: Hyperparameters, units: Units) -> dict[str, Factor]:
    """Return ``{name: factor}`` from draws on the scale of a model to the units of the data."""
    return {name: units.scale(*record.dimensions.get(name, NO_UNIT)) for name in record.hyper}


def unit_carrier(have_priors: list[bool]) -> int:
    """Return the index of the factor of a product that carries the unit of y.

    It is the first factor whose variance has a prior, or the first of all if none has one.
    """
    if not any(have_priors):
        return 0
    return have_priors.index(True)


def wrong_columns(kernel: str, widths: tuple[int, float], d: int) -> SettingError:
    """Return the error for d columns, outside the smallest and largest number of a kernel."""
    low, high = widths
    if d < low:
        wanted = f"at least {counted(low, 'column')} of X"
    else:
        wanted = f"at most {counted(int(high), 'column')} of X"
    do = "choose another kernel, or Subspace(kernel, columns)"
    return SettingError(f"{wanted} for {kernel}", str(d), do)


def other_rows(X1: Tensor, X2: Tensor | None) -> Tensor:
    """Return X2, or X1 if X2 is None, which means the same rows."""
    return X1 if X2 is None else X2


def mapped(function: Callable[[Tensor], Tensor], X2: Tensor | None) -> Tensor | None:
    """Return function(X2), or None if X2 is None."""
    return None if X2 is None else function(X2)


def constant_variance(h: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Return the diagonal [*batch, n] of a kernel that has ``variance`` there."""
    return h["variance"].expand(*h["variance"].shape[:-1], X.shape[-2])
