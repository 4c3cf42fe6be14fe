"""Student's t distribution for degrees of freedom of any size."""

from __future__ import annotations

import math
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor

from .log_gamma import log_rising

__all__ = ["StudentTOfAnyDf"]


class StudentTOfAnyDf(dist.StudentT):
    """Student's t distribution whose log density keeps its digits for large df.

    torch subtracts two log gamma functions, which leaves an error of 3e-5 at df = 1e10, and 20 at
    df = 1e17. The arguments are those of torch.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        own: Any = self
        df, scale = own.df, own.scale
        z = (value - own.loc) / scale
        # log Gamma(df / 2 + 1 / 2) - log Gamma(df / 2) - log(df / 2) / 2
        rising = log_rising(0.5 * df, torch.full_like(df, 0.5))
        tail = 0.5 * (df + 1) * torch.log1p(z.square() / df)
        return rising - 0.5 * math.log(2 * math.pi) - scale.log() - tail
