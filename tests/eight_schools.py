"""The eight schools of Rubin (1981): effects and standard errors, and the non-centred program."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

SCHOOLS = {
    "sigma": torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], dtype=torch.float64),
    "y": torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=torch.float64),
}


def schools(sigma: Tensor, y: Tensor | None = None) -> None:
    zero = torch.zeros((), dtype=sigma.dtype)
    mu = pyro.sample("mu", dist.Normal(zero, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(zero + 5.0))
    z = pyro.sample("z", dist.Normal(torch.zeros_like(sigma), 1.0).to_event(1))
    pyro.sample("y", dist.Normal(mu + tau * z, sigma).to_event(1), obs=y)
