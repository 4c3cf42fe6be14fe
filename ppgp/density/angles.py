"""Map angles to points of the plane, the unconstrained space of a circular site."""

from __future__ import annotations

import math

import torch
from torch import Tensor

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
