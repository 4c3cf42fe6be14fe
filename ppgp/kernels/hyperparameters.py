"""The hyperparameters of a kernel as fields of a record, with units and values; and helpers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from ..arguments import NamedArguments
from ..display.tables import record_page
from ..errors import SettingError, counted
from ..priors import (
    Param,
    Prior,
    Site,
    check_numbers,
    in_units_of_data,
    plain,
    refuse_negative,
    site,
    value_of,
    with_plain_fields,
)
from .units import Factor, Units

R = TypeVar("R")

NO_UNIT = (0, 0)  # powers of y and of X


class Hyperparameters(NamedArguments):
    """A frozen record with positive hyperparameters as fields.

    Attributes:
        hyper: Names of the positive hyperparameters; each field is a prior or a fixed number.
        signed: Those of them that may be negative too.
        widths: The smallest and the largest number of columns of X for which it is a covariance.
        dimensions: ``{hyperparameter: (power of y, power of X)}``; a missing name has no unit.
    """

    # an array times a kernel is no array of kernels: NumPy leaves the product to the kernel
    __array_ufunc__ = None

    hyper: ClassVar[tuple[str, ...]] = ()
    signed: ClassVar[tuple[str, ...]] = ()
    widths: ClassVar[tuple[int, float]] = (1, math.inf)
    dimensions: ClassVar[Mapping[str, tuple[float, float]]] = {
        "variance": (2, 0),
        "lengthscale": (0, 1),
        "period": (0, 1),
    }

    def __post_init__(self) -> None:
        """Convert and check numbers; a subclass with its own ``__post_init__`` calls it first.

        Raises:
            SettingError: If a hyperparameter is no prior and no number, or a number below 0.
        """
        with_plain_fields(self)
        for name in self.hyper:
            given = getattr(self, name)
            if isinstance(given, Prior):
                continue
            called = f"{type(self).__name__}.{name}"
            check_numbers(given, called)
            if name not in self.signed:
                refuse_negative(called, given)

    def _repr_html_(self) -> str:
        return record_page(self, NamedArguments, Prior)

    def check_columns(self, d: int) -> None:
        """Raise SettingError if this is no covariance for inputs of d columns."""
        low, high = self.widths
        if low <= d <= high:
            return
        if d < low:
            wanted = f"at least {counted(low, 'column')} of X"
        else:
            wanted = f"at most {counted(int(high), 'column')} of X"
        do = "choose another kernel, or Subspace(kernel, columns)"
        raise SettingError(f"{wanted} for {type(self).__name__}", str(d), do)

    def sites(self, d: int) -> dict[str, Site | Param]:
        """Return ``{name: Site}`` of the hyperparameters for inputs of d columns.

        A quantity that is optimised rather than inferred is a Param.
        """
        self.check_columns(d)
        kind = type(self).__name__
        return {
            name: site(f"{kind}.{name}", getattr(self, name), positive=True) for name in self.hyper
        }

    def measured(self) -> bool:
        """Whether a length (period, slope, angle, ...) is given in the units of the data."""
        return any(
            self.dimensions.get(name, NO_UNIT)[1] and in_units_of_data(getattr(self, name))
            for name in self.hyper
        )

    def uncertain_level(self) -> bool:
        """Whether a variance has a prior; the first such factor of a product has the unit of y."""
        return any(
            self.dimensions.get(name, NO_UNIT)[0] and isinstance(getattr(self, name), Prior)
            for name in self.hyper
        )

    def factors(self, units: Units) -> dict[str, Factor]:
        """Return ``{site: factor}`` from draws on the scale of a model to the units of the data.

        A factor is one number, or one per column of X (a length in columns of several sds becomes
        one length per column); NaN where there is no equivalent.
        """
        return {name: units.scale(*self.dimensions.get(name, NO_UNIT)) for name in self.hyper}

    def _values(self, theta: Mapping[str, Tensor], like: Tensor, axes: int) -> dict[str, Tensor]:
        """Return the hyperparameters with so many axes of length 1 at the end."""
        fixed = [name for name in self.hyper if name not in theta]
        every = {**theta, **{k: value_of(theta, k, getattr(self, k), like) for k in fixed}}
        return {name: every[name][(..., *(None,) * axes)] for name in self.hyper}


def is_number(value: object) -> bool:
    """Return whether a value is a number of Python, NumPy or torch."""
    return isinstance(plain(value), int | float) and not isinstance(value, bool)


def replaced(record: R, /, **changes: object) -> R:
    """Return a copy of a dataclass with other values in some of its fields."""
    original: Any = record
    return replace(original, **changes)


def unit_carrier(have_priors: list[bool]) -> int:
    """Return the index of the factor of a product that carries the unit of y.

    It is the first factor whose variance has a prior, or the first of all if none has one.
    """
    if not any(have_priors):
        return 0
    return have_priors.index(True)


def other_rows(X1: Tensor, X2: Tensor | None) -> Tensor:
    """Return X2, or X1 if X2 is None, which means the same rows."""
    return X1 if X2 is None else X2


def mapped(function: Callable[[Tensor], Tensor], X2: Tensor | None) -> Tensor | None:
    """Return function(X2), or None if X2 is None."""
    return None if X2 is None else function(X2)


def constant_variance(h: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Return the diagonal [*batch, n] of a kernel that has ``variance`` there."""
    return h["variance"].expand(*h["variance"].shape[:-1], X.shape[-2])
