"""Where each site lies in a flat vector z [p] of unconstrained numbers."""

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
    """Where a site lies in z, and how it gets there."""

    start: int
    stop: int
    unconstrained: torch.Size
    event: torch.Size
    transform: Any
    param: bool

    @property
    def circular(self) -> bool:
        """Whether its numbers are angles, each of them laid into a plane."""
        return isinstance(self.transform, Angle)

    @property
    def free(self) -> int:
        """How many numbers can be chosen."""
        return (self.stop - self.start) // (2 if self.circular else 1)

    def of(self, z: Tensor) -> Tensor:
        return z[..., self.start : self.stop].reshape(z.shape[:-1] + self.unconstrained)


def placed(slices: Mapping[str, Slice], z: Tensor, values: Mapping[str, Tensor]) -> Tensor:
    """z, but at ``values`` {site: [*event]} where they are given and lie inside the support."""
    z = z.clone()
    for name, value in values.items():
        if name in slices:
            s = slices[name]
            free = s.transform.inv(value.detach().to(z)).reshape(-1)
            if bool(torch.isfinite(free).all()):
                z[s.start : s.stop] = free
    return z


def laid(slices: Mapping[str, Slice], draws: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """z [..., p] from ``{site: [..., *event]}``."""
    parts = []
    for name, s in slices.items():
        free = s.transform.inv(draws[name].to(like))
        parts.append(free.reshape(*free.shape[: free.ndim - len(s.unconstrained)], -1))
    return torch.cat(parts, -1)


def names(slices: Mapping[str, Slice]) -> list[str]:
    """The site of each coordinate of z, and its index there where it has several."""
    out: list[str] = []
    for name, s in slices.items():
        out += [f"{name}[{j}]" for j in range(s.stop - s.start)] if s.stop - s.start > 1 else [name]
    return out
