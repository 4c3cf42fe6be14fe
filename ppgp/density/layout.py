"""The place of each site in a flat vector z [p] of unconstrained numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pyro.distributions.transforms import (
    Normalize,
    SoftplusLowerCholeskyTransform,
    UnitLowerCholeskyTransform,
)
from torch import Tensor
from torch.distributions.transforms import (
    ComposeTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
)

__all__ = [
    "OBSERVED",
    "UNOBSERVED",
    "Angle",
    "Partly",
    "Slice",
    "laid",
    "names",
    "placed",
    "with_given",
]


#: transforms of square matrices, of which the half above the diagonal is not used
TRIANGLES = LowerCholeskyTransform | PositiveDefiniteTransform | SoftplusLowerCholeskyTransform
UNOBSERVED, OBSERVED = "_unobserved", "_observed"  # the sites that Pyro makes of obs_mask
POWER = 10  # of the radius in its density; its sd is about 1 / sqrt(2 POWER)
LOG_CONSTANT = (
    math.log(2) + 0.5 * (POWER + 2) * math.log(POWER / 2) - math.lgamma(0.5 * (POWER + 2))
)


class Angle:
    """The map from (x, y) in the plane to its angle in (-pi, pi]; ``inv`` gives radius 1.

    The radius carries no information. The density of x and y is proportional to
    r^k exp(-k r^2 / 2), k = ``POWER``, which is highest at 1 and integrates to 1. The posterior of
    the angle is then proper and has no seam. If the angle itself were a coordinate of the real
    line, the density would repeat every 2 pi and samplers would run off to infinity.
    """

    def __call__(self, point: Tensor) -> Tensor:
        return torch.atan2(point[..., 1], point[..., 0])

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        """Return the shape of the points from that of the angles."""
        return torch.Size((*shape, 2))

    def inv(self, angle: Tensor) -> Tensor:
        return torch.stack([angle.cos(), angle.sin()], -1)

    def log_abs_det_jacobian(self, point: Tensor, angle: Tensor) -> Tensor:
        """Return the log density of the radius, which takes the place of a Jacobian."""
        square = point.square().sum(-1)
        return LOG_CONSTANT + 0.5 * POWER * (square.log() - square)


class Partly:
    """The map to a value of which some entries are free, and the others are given.

    Those that ``obs_mask`` leaves unobserved are free.

    Args:
        whole: The map of all entries.
        free: Which entries are free, [*batch].
        given: The value that the others have, [*batch, *event].
    """

    def __init__(self, whole: Any, free: Tensor, given: Tensor) -> None:
        self.whole, self.free, self.given = whole, free, given
        self.place = free.reshape(-1).nonzero()[:, 0]
        # the shape of an event before and after the map
        self.event = given.shape[free.ndim :]
        self.before = torch.Size(whole.inverse_shape(given.shape))[free.ndim :]

    def of(self, whole: Any) -> Partly:
        """Return the map with another one of all entries."""
        changed = copy.copy(self)
        changed.whole = whole
        return changed

    def __call__(self, some: Tensor) -> Tensor:
        return self.completed(self.whole(self._spread(some)))

    def completed(self, value: Tensor) -> Tensor:
        """Return a value of all entries with those that are given in their places."""
        return torch.where(self._of_event(self.free), value, self.given.to(value))

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        """Return the shape of the free entries on the real line."""
        leading = shape[: len(shape) - self.given.ndim]
        return torch.Size((*leading, len(self.place), *self.before))

    def inv(self, value: Tensor) -> Tensor:
        return self.chosen(self.whole.inv(value))

    def chosen(self, back: Tensor) -> Tensor:
        """Return the free entries of unconstrained values of all."""
        axis = back.ndim - len(self.before) - self.free.ndim
        flat = back.unsqueeze(axis)  # of a site outside plates
        if self.free.ndim:
            flat = back.flatten(axis, axis + self.free.ndim - 1)
        return flat.index_select(axis, self.place)

    def log_abs_det_jacobian(self, some: Tensor, value: Tensor) -> Tensor:
        """Return the log Jacobian of the free entries, 0 at the others."""
        spread = self._spread(some)
        slope = self.whole.log_abs_det_jacobian(spread, self.whole(spread))
        free = self.free.reshape([*self.free.shape, *(1,) * (slope.ndim - self.free.ndim)])
        return torch.where(free, slope, 0.0)

    def unused_density(self, value: Tensor) -> Tensor:
        """Return the log density of the given entries if they were free, and normal there.

        They are normal on the real line, with mean 0 and variance 1. A guide that draws all
        entries, of which those do not matter, then has one to fit.

        Args:
            value: A value of all entries.
        """
        free = self.whole.inv(value)
        normal = -0.5 * (free.square() + math.log(2 * math.pi))
        slope = self.whole.log_abs_det_jacobian(free, value)
        each = [x.reshape(*self.free.shape, -1).sum(-1) for x in (normal, slope)]
        return torch.where(self.free, 0.0, each[0] - each[1]).sum()

    def _spread(self, some: Tensor) -> Tensor:
        axis = some.ndim - 1 - len(self.before)
        leading = some.shape[:axis]
        empty = some.new_zeros((*leading, self.free.numel(), *self.before))
        flat = empty.index_copy(axis, self.place, some)
        return flat.reshape([*leading, *self.free.shape, *self.before])

    def _of_event(self, x: Tensor) -> Tensor:
        return x.reshape([*x.shape, *(1,) * len(self.event)])


def with_given(draws: Mapping[str, Tensor], imputed: Mapping[str, Partly]) -> dict[str, Tensor]:
    """Return draws of sites that ``obs_mask`` makes with their data, and the sites made of both.

    Args:
        draws: {site: [*leading, *event]}.
        imputed: {site that obs_mask makes: its map}.
    """
    found = dict(draws)
    for name, transform in imputed.items():
        found[name] = found[name.removesuffix(UNOBSERVED)] = transform.completed(draws[name])
    return found


@dataclass(frozen=True)
class Slice:
    """The place of a site in z, and the transform between both.

    Attributes:
        start: The first coordinate.
        stop: One after the last coordinate.
        unconstrained: The shape of the unconstrained value.
        event: The shape of the value.
        transform: From the unconstrained value to the value.
        param: Whether it is a ``pyro.param``.
        dtype: The dtype of the value; None for that of z.
        circular: Whether its numbers are angles, each of which takes two coordinates.
    """

    start: int
    stop: int
    unconstrained: torch.Size
    event: torch.Size
    transform: Any
    param: bool
    dtype: torch.dtype | None = None
    circular: bool = False

    @property
    def parameters(self) -> int:
        """The number of free parameters, where the transform takes more coordinates than those."""
        transform, size = self.transform, self.stop - self.start
        while isinstance(transform, IndependentTransform | ComposeTransform):
            if isinstance(transform, IndependentTransform):
                transform = transform.base_transform
            elif transform.parts:
                transform = transform.parts[0]  # the one that takes the coordinates
            else:
                return size
        if self.circular:
            return size // 2
        n = self.event[-1] if self.event else 1
        if isinstance(transform, SoftmaxTransform | Normalize):
            return size // n * (n - 1)
        if isinstance(transform, TRIANGLES):
            return size // n**2 * (n * (n + 1) // 2)
        if isinstance(transform, UnitLowerCholeskyTransform):
            return size // n**2 * (n * (n - 1) // 2)
        return size

    def of(self, z: Tensor) -> Tensor:
        """Return the unconstrained value of the site in z [..., p]."""
        free = z[..., self.start : self.stop].reshape(z.shape[:-1] + self.unconstrained)
        return free if self.dtype is None else free.to(self.dtype)


def placed(slices: Mapping[str, Slice], z: Tensor, values: Mapping[str, Tensor]) -> Tensor:
    """Return z [p] with ``values`` {site: [*event]} put in, where they lie inside the support."""
    z = z.clone()
    for name, value in values.items():
        if name in slices:
            s = slices[name]
            free = s.transform.inv(value.detach().to(z)).reshape(-1)
            if bool(torch.isfinite(free).all()):
                z[s.start : s.stop] = free
    return z


def laid(slices: Mapping[str, Slice], draws: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """Return z [..., p] from ``{site: [..., *event]}``."""
    parts = []
    for name, s in slices.items():
        free = s.transform.inv(draws[name].to(like))
        parts.append(free.reshape(*free.shape[: free.ndim - len(s.unconstrained)], -1))
    return torch.cat(parts, -1)


def names(slices: Mapping[str, Slice]) -> list[str]:
    """Return the site of each coordinate of z, and its index there where it has several."""
    out: list[str] = []
    for name, s in slices.items():
        size = s.stop - s.start
        out += [name] * size if size < 2 else [f"{name}[{j}]" for j in range(size)]
    return out
