"""Geometric anisotropy: a range that depends on the direction."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import SettingError
from ..priors import Param, PriorLike, Site, Uniform, in_units_of_data, moved, site, value_of
from .base import Around, Kernel, Theta, proportioned
from .units import Factor, Units


@dataclass(frozen=True)
class Anisotropy(Around):
    """The kernel with its full range along ``angle`` and ``ratio`` times that across it. Deutsch & Journel (1998), section II.3.

    The first column of X points east, the second north; further columns are left as they are. ``angle`` is that of the longest
    range, in degrees clockwise from north, from 0 to 180; ``ratio`` is the shortest range over the longest, at most 1: the
    conventions of GSLIB and gstat. (PyKrige turns counter-clockwise, and its scaling is 1 / ratio.) With a number as angle, ratio or
    range the angle is that of the data; else that of the columns as the model sees them.

    Raises:
        SettingError: if a fixed angle is not in [0, 180] or a fixed ratio not in (0, 1]; on use, for one column.
    """

    kernel: Kernel
    angle: PriorLike = Uniform(0.0, 180.0)
    ratio: PriorLike = Uniform(0.0, 1.0)
    widths = (2, math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.angle, int | float) and not 0 <= self.angle <= 180:
            raise SettingError(
                "an angle from 0 to 180 degrees, clockwise from north",
                repr(self.angle),
                "add or take off 180",
            )
        if isinstance(self.ratio, int | float) and not 0 < self.ratio <= 1:
            do = "divide the shorter range by the longer, or turn the angle by 90"
            raise SettingError("a ratio of ranges above 0 and at most 1", repr(self.ratio), do)

    def sites(self, d: int) -> dict[str, Site | Param]:
        self.check_columns(d)
        inner = self.kernel.sites(d)
        if {"angle", "ratio"} & set(inner):
            raise SettingError(
                "one Anisotropy around a kernel",
                "an Anisotropy in an Anisotropy",
                "keep the outer one",
            )
        own = {
            "angle": site("angle", self.angle, positive=True, zero=True),
            "ratio": site("ratio", self.ratio, positive=True),
        }
        return {**own, **inner}

    def measured(self) -> bool:
        return (
            in_units_of_data(self.angle) or in_units_of_data(self.ratio) or self.kernel.measured()
        )

    def in_units(self, units: Units) -> Kernel:
        if not self.measured():
            return super().in_units(units)
        turned = replace(
            self,
            kernel=self.kernel.in_units(units.even()),
            angle=moved(self.angle),
            ratio=moved(self.ratio),
        )
        return proportioned(turned, units)

    def factors(self, units: Units) -> dict[str, Factor]:
        even = units.columns((0, 1)).isotropic
        own = 1.0 if even else math.nan
        return {
            "angle": own,
            "ratio": own,
            **self.kernel.factors(units if even else units.without()),
        }

    def _turned(self, theta: Theta, X: Tensor) -> Tensor:
        """Coordinates along and across the longest range, the latter stretched: [*batch, n, d]."""
        turn = value_of(theta, "angle", self.angle, X)[..., None] * (math.pi / 180.0)
        ratio = value_of(theta, "ratio", self.ratio, X)[..., None]
        east, north = X[..., 0], X[..., 1]
        along = turn.sin() * east + turn.cos() * north
        across = (turn.cos() * east - turn.sin() * north) / ratio
        along, across = torch.broadcast_tensors(
            along, across
        )  # the angle may be a number where the ratio is drawn
        rest = X[..., 2:].expand(*along.shape, X.shape[-1] - 2)
        return torch.cat([along[..., None], across[..., None], rest], -1)

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        self.check_columns(X1.shape[-1])
        return self.kernel(
            theta, self._turned(theta, X1), None if X2 is None else self._turned(theta, X2)
        )

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        self.check_columns(X.shape[-1])
        return self.kernel.diag(theta, self._turned(theta, X))

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        return self.kernel.nugget(theta, self._turned(theta, X))
