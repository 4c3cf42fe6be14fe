"""The place of each site in a flat vector z [p] of unconstrained numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .angles import Angle

__all__ = ["Slice", "laid", "names", "placed"]


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
    """

    start: int
    stop: int
    unconstrained: torch.Size
    event: torch.Size
    transform: Any
    param: bool
    dtype: torch.dtype | None = None

    @property
    def circular(self) -> bool:
        """Whether its numbers are angles, each of which takes two coordinates."""
        return isinstance(self.transform, Angle)

    @property
    def free(self) -> int:
        """How many numbers can be chosen: an angle is one number in two coordinates."""
        return (self.stop - self.start) // (2 if self.circular else 1)

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
        out += [f"{name}[{j}]" for j in range(s.stop - s.start)] if s.stop - s.start > 1 else [name]
    return out
