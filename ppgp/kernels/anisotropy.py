"""Geometric anisotropy: a lengthscale that depends on the direction."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import SettingError
from ..priors import Param, PriorLike, Site, Uniform, in_units_of_data, rescaled, site, value_of
from .around import Around, proportioned
from .base import Kernel, Theta, mapped
from .units import Factor, Units


@dataclass(frozen=True)
class Anisotropy(Around):
    """The kernel with its full range along ``angle``, and ``ratio`` times that range across it.

    The first column of X [n, d] points east, the second north; further columns are left as they
    are. Angle and ratio follow the conventions of GSLIB and gstat. (PyKrige turns
    counter-clockwise, and its scaling is 1 / ratio.) If the angle, the ratio or the range is a
    number, the angle is that in the data; otherwise it is that in the columns as the model sees
    them. Deutsch & Journel (1998), section II.3.

    Args:
        kernel: An isotropic kernel.
        angle: Direction of the longest range in degrees clockwise from north, from 0 to 180; a
            prior or a number.
        ratio: The shortest range over the longest, at most 1, without a unit; a prior or a number.

    Raises:
        SettingError: If ``kernel`` is no kernel, a fixed angle is not in [0, 180] or a fixed ratio
            not in (0, 1]; on use, if X has one column.

    Examples:
        A range of 1 from west to east, and of 0.5 from south to north:

        >>> import torch
        >>> from ppgp import kernels
        >>> kernel = kernels.Anisotropy(kernels.RBF(1.0, 1.0), angle=90.0, ratio=0.5)
        >>> kernel({}, torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))[0]
        tensor([1.0000, 0.6065, 0.1353])
    """

    kernel: Kernel
    angle: PriorLike = Uniform(0.0, 180.0)
    ratio: PriorLike = Uniform(0.0, 1.0)
    widths = (2, math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.angle, int | float) and not 0 <= self.angle <= 180:
            wanted = "an angle from 0 to 180 degrees, clockwise from north"
            raise SettingError(wanted, repr(self.angle), "add or subtract 180")
        if isinstance(self.ratio, int | float) and not 0 < self.ratio <= 1:
            do = "divide the shorter range by the longer, or turn the angle by 90"
            raise SettingError("a ratio of ranges above 0 and at most 1", repr(self.ratio), do)

    def sites(self, d: int) -> dict[str, Site | Param]:
        self.check_columns(d)
        inner = self.kernel.sites(d)
        if {"angle", "ratio"} & set(inner):
            got = "an Anisotropy in an Anisotropy"
            raise SettingError("one Anisotropy around a kernel", got, "keep the outer one")
        own = {
            "angle": site("angle", self.angle, positive=True, zero=True),
            "ratio": site("ratio", self.ratio, positive=True),
        }
        return {**own, **inner}

    def measured(self) -> bool:
        own = in_units_of_data(self.angle) or in_units_of_data(self.ratio)
        return own or self.kernel.measured()

    def in_units(self, units: Units) -> Kernel:
        if not self.measured():
            return super().in_units(units)
        kernel = self.kernel.in_units(units.even())
        rotated = replace(
            self, kernel=kernel, angle=rescaled(self.angle), ratio=rescaled(self.ratio)
        )
        return proportioned(rotated, units)

    def factors(self, units: Units) -> dict[str, Factor]:
        if units.columns((0, 1)).isotropic:
            return {"angle": 1.0, "ratio": 1.0, **self.kernel.factors(units)}
        inner = self.kernel.factors(units.without())
        return {"angle": math.nan, "ratio": math.nan, **inner}

    def _rotated(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the coordinates along the longest range and, stretched, across it: [*b, n, d]."""
        turn = value_of(theta, "angle", self.angle, X)[..., None] * (math.pi / 180.0)
        ratio = value_of(theta, "ratio", self.ratio, X)[..., None]
        east, north = X[..., 0], X[..., 1]
        along = turn.sin() * east + turn.cos() * north
        across = (turn.cos() * east - turn.sin() * north) / ratio
        # the angle may be a number and the ratio a batch of draws
        along, across = torch.broadcast_tensors(along, across)
        rest = X[..., 2:].expand(*along.shape, X.shape[-1] - 2)
        return torch.cat([along[..., None], across[..., None], rest], -1)

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        self.check_columns(X1.shape[-1])
        other = mapped(lambda X: self._rotated(theta, X), X2)
        return self.kernel(theta, self._rotated(theta, X1), other)

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        self.check_columns(X.shape[-1])
        return self.kernel.diag(theta, self._rotated(theta, X))

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        return self.kernel.nugget(theta, self._rotated(theta, X))
