"""Functions of the standard normal distribution, which scores are made of."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROOT_2PI = math.sqrt(2 * math.pi)


def pdf(z: Tensor) -> Tensor:
    """Return the standard normal density at z."""
    return torch.exp(-0.5 * z.square()) / ROOT_2PI


def cdf(z: Tensor) -> Tensor:
    """Return P(Z <= z), also far in the lower tail, where torch.special.ndtr is 0."""
    return 0.5 * torch.special.erfc(-z / math.sqrt(2))


def hazard(z: Tensor) -> Tensor:
    """Return pdf(z) / P(Z > z), also far in the upper tail."""
    return math.sqrt(2 / math.pi) / torch.special.erfcx(z / math.sqrt(2))
