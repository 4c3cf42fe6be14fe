"""The units of a kernel's inputs and values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch import Tensor

from ..priors.units import power

Factor: TypeAlias = float | tuple[float, ...]
CLOSE = 1e-9  # relative; factors that went through a division are alike to rounding


@dataclass(frozen=True)
class Units:
    """How a kernel's inputs and values were standardised: x -> (x - x_mean) / x_sd by column, f -> f / y_sd.

    ``y_sd`` is 1 where another factor of a product carries the unit of y.
    """

    x_mean: tuple[float, ...]
    x_sd: tuple[float, ...]
    y_sd: float = 1.0

    @classmethod
    def of(cls, x_mean: Tensor, x_sd: Tensor, y_sd: Tensor) -> Units:
        return cls(tuple(x_mean.tolist()), tuple(x_sd.tolist()), float(y_sd))

    @classmethod
    def none(cls, d: int, y_sd: float = 1.0) -> Units:
        """Inputs [n, d] that have no unit, such as the features of a network."""
        return cls((0.0,) * d, (1.0,) * d, y_sd)

    def columns(self, which: Sequence[int]) -> Units:
        return replace(
            self,
            x_mean=tuple(self.x_mean[c] for c in which),
            x_sd=tuple(self.x_sd[c] for c in which),
        )

    def alone(self) -> Units:
        """Of a factor that has no unit of y."""
        return replace(self, y_sd=1.0)

    def without(self) -> Units:
        """Of columns in which no length has an equivalent."""
        return replace(self, x_sd=(math.nan,) * len(self.x_sd))

    def even(self) -> Units:
        """Every column measured by ``middle``, and none of them centred."""
        d = len(self.x_sd)
        return replace(self, x_mean=(0.0,) * d, x_sd=(self.middle,) * d)

    def divided(self, factor: Factor) -> Units:
        """Of inputs that are ``factor`` times these."""
        each = factor if isinstance(factor, tuple) else (factor,) * len(self.x_sd)
        return replace(self, x_sd=tuple(s / f for s, f in zip(self.x_sd, each, strict=True)))

    @property
    def isotropic(self) -> bool:
        """Whether one factor serves all columns, so that one length on the one scale is one length on the other."""
        return all(math.isclose(s, self.x_sd[0], rel_tol=CLOSE) for s in self.x_sd)

    @property
    def middle(self) -> float:
        """One factor for all columns: the geometric mean of theirs, by which lengths in the units of the data are divided."""
        if self.isotropic:
            return self.x_sd[0]
        return math.exp(sum(math.log(s) for s in self.x_sd) / len(self.x_sd))

    def scale(self, y: float, x: float) -> Factor:
        """What a number of unit y^y X^x is multiplied by to be in the units of the data: one factor, or one a column of X where
        these differ. NaN where there is none."""
        level = power(self.y_sd, y)
        if x == 0:
            return level
        each = tuple(level * power(s, x) for s in self.x_sd)
        if any(math.isnan(v) for v in each):
            return math.nan
        return each[0] if self.isotropic else each
