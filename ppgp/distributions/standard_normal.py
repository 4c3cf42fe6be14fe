"""Functions of the standard normal distribution, which scores are made of."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .gamma_functions import polynomial

ROOT_2PI = math.sqrt(2 * math.pi)
FAR = 50.0  # from here on the hazard minus z is summed
EXCESS = (1.0, -2.0, 10.0, -74.0, 706.0)  # of its series in 1 / z^2, times 1 / z


def pdf(z: Tensor) -> Tensor:
    """Return the standard normal density at z."""
    return torch.exp(-0.5 * z.square()) / ROOT_2PI


def cdf(z: Tensor) -> Tensor:
    """Return P(Z <= z), also far in the lower tail, where torch.special.ndtr is 0."""
    return 0.5 * torch.special.erfc(-z / math.sqrt(2))


def hazard(z: Tensor) -> Tensor:
    """Return pdf(z) / P(Z > z), also far in the upper tail."""
    return math.sqrt(2 / math.pi) / torch.special.erfcx(z / math.sqrt(2))


def hazard_excess(z: Tensor) -> Tensor:
    """Return hazard(z) - z, which vanishes like 1 / z, without cancellation."""
    inverse = 1 / z.clamp_min(FAR)
    return torch.where(z < FAR, hazard(z) - z, inverse * polynomial(EXCESS, inverse.square()))


def log_improvement(z: Tensor) -> Tensor:
    """Return log E(Z + z)+ = log(pdf(z) + z cdf(z)) for Z ~ N(0, 1), also far in the lower tail.

    Ament, Daulton, Eriksson, Balandat & Bakshy (2023), equation 9.
    """
    near, x = z.clamp_min(-1.0), -z.clamp_max(-1.0)
    above = (pdf(near) + near * cdf(near)).log()
    below = -0.5 * x.square() - math.log(ROOT_2PI) + (hazard_excess(x) / hazard(x)).log()
    return torch.where(z > -1.0, above, below)
