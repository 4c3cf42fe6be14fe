"""A program whose missing observations ``obs_mask`` makes latent, with its data."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

F64 = torch.float64
Y = torch.tensor([1.3, torch.nan, 2.0, 0.7, torch.nan, 1.1], dtype=F64)
HERE = ~Y.isnan()
DATA = {"y": Y, "here": HERE}


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def imputed(y: Tensor, here: Any) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 2.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=here)
