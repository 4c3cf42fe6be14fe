"""Simulation-based calibration of StateSpaceGP by NUTS, with a false alarm in a thousand."""

from __future__ import annotations

import pytest
import torch

from ppgp import sbc
from ppgp.inference import NUTS
from ppgp.kernels import Matern
from ppgp.models import StateSpaceGP
from ppgp.priors import LogNormal


@pytest.mark.slow
def test_nuts_is_calibrated_at_200_times() -> None:
    generator = torch.Generator().manual_seed(0)
    t = 10 * torch.rand(200, 1, generator=generator, dtype=torch.float64)
    kernel = Matern(1.5, 1.0, LogNormal(0.0, 0.5))
    model = StateSpaceGP(kernel, LogNormal(-2.0, 0.5), 0.0)
    how = NUTS(draws=40, warmup=50, chains=1, max_depth=3)
    found = sbc(model, how, 20, X=t, progress=False, level=0.999)
    assert found.passes, found.to_frame()
