"""Chains that sit in different modes say so, with the places and how far below."""

from __future__ import annotations

from dataclasses import replace

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_chains_on_both_sides_of_a_valley_are_told_apart() -> None:
    """The two modes of a square, 8 apart; the prior makes one 2 nats higher than the other."""

    def program(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(torch.tensor(1.0, dtype=y.dtype), 2.0))
        pyro.sample("y", dist.Normal(a**2, 1.0), obs=y)

    y = torch.tensor(16.0, dtype=torch.float64)
    how = inference.HMC(draws=200, warmup=200, chains=2)
    sides = []
    for sign in (-4.0, 4.0):
        init = torch.tensor([sign], dtype=torch.float64)
        sides.append(ppgp.fit(program, {"y": y}, how, init=init, progress=False))
    both = sides[0].draws["a"][:1], sides[1].draws["a"][:1]
    lp = torch.cat([side.stats["lp"][:1] for side in sides])
    joined = replace(
        sides[0], draws={"a": torch.cat(both)}, stats={**sides[0].stats, "lp": lp}, warnings=()
    )
    found = ppgp.diagnose(joined)
    assert found.verdict == "do not use"
    assert found.reason.startswith("the chains sit in 2 modes: a is near -3.9")
    assert "highest near 4" in found.reason or "highest near 3.9" in found.reason
    assert "modes" not in ppgp.diagnose(sides[0]).reason
