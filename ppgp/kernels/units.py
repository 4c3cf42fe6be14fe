"""The standardisation of a kernel's inputs and values, and conversions between units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..data.dataset import Scaler
from ..priors.units import power

Factor: TypeAlias = float | tuple[float, ...]
CLOSE = 1e-9  # relative tolerance for factors that differ by the rounding of a division


@dataclass(frozen=True)
class Units:
    """The standardisation: x -> (x - x_mean) / x_sd per column, and f -> f / y_sd.

    Attributes:
        x_mean: One number per column.
        x_sd: One number per column; NaN if no length has an equivalent.
        y_sd: 1 if another factor of a product carries the unit of y.
    """

    x_mean: tuple[float, ...]
    x_sd: tuple[float, ...]
    y_sd: float = 1.0

    @classmethod
    def of(cls, scaler: Scaler) -> Units:
        """Return the parts of a Scaler that a kernel needs."""
        x_mean, x_sd = tuple(scaler.x_mean.tolist()), tuple(scaler.x_sd.tolist())
        return cls(x_mean, x_sd, float(scaler.y_sd))

    @classmethod
    def none(cls, d: int, y_sd: float = 1.0) -> Units:
        """Return the units of d columns without a unit, such as the features of a network."""
        return cls((0.0,) * d, (1.0,) * d, y_sd)

    def columns(self, which: Sequence[int]) -> Units:
        """Return the units of some columns."""
        x_mean, x_sd = tuple(self.x_mean[c] for c in which), tuple(self.x_sd[c] for c in which)
        return replace(self, x_mean=x_mean, x_sd=x_sd)

    def alone(self) -> Units:
        """Return the units of a factor of a product that has no unit of y."""
        return replace(self, y_sd=1.0)

    def without(self) -> Units:
        """Return the units of columns in which no length has an equivalent."""
        return replace(self, x_sd=(math.nan,) * len(self.x_sd))

    def even(self) -> Units:
        """Return units with ``middle`` as the sd of every column, and without centring."""
        d = len(self.x_sd)
        return replace(self, x_mean=(0.0,) * d, x_sd=(self.middle,) * d)

    def divided(self, factor: Factor) -> Units:
        """Return the units of inputs that are ``factor`` times these."""
        each = factor if isinstance(factor, tuple) else (factor,) * len(self.x_sd)
        return replace(self, x_sd=tuple(s / f for s, f in zip(self.x_sd, each, strict=True)))

    @property
    def isotropic(self) -> bool:
        """Whether all columns have the same sd, so that one length stays one length."""
        return all(math.isclose(s, self.x_sd[0], rel_tol=CLOSE) for s in self.x_sd)

    @property
    def middle(self) -> float:
        """The geometric mean of the sds, which divides lengths in the units of the data."""
        if self.isotropic:
            return self.x_sd[0]
        return math.exp(sum(math.log(s) for s in self.x_sd) / len(self.x_sd))

    def scale(self, y: float, x: float) -> Factor:
        """Return the factor from the scale of a model to the units of the data.

        Args:
            y: The power of y in the unit of the number.
            x: The power of X in the unit of the number.

        Returns:
            One factor, or one per column if these differ; NaN if there is no equivalent.
        """
        level = power(self.y_sd, y)
        if x == 0:
            return level
        each = tuple(level * power(s, x) for s in self.x_sd)
        if any(math.isnan(v) for v in each):
            return math.nan
        if self.isotropic:
            return each[0]
        return each
