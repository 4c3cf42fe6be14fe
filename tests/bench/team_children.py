"""What tests/bench/test_teams.py times: it runs alone or by torchrun, one thread a process."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch

import ppgp
from ppgp import models
from ppgp.inference.variational.collapsed_svi import NaturalSteps

PAIRS = 5


def rows(n: int, d: int = 9) -> ppgp.Dataset:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n, d))
    return ppgp.Dataset(X, np.sin(X[:, 0]) + 0.3 * generator.standard_normal(n))


def timed(team, call) -> dict[str, float]:
    """Return the median wall and processor seconds of a call that all ranks make."""
    walls, cpus = [], []
    call()
    for _ in range(PAIRS):
        team.gathered(0)  # all ranks begin together
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"wall": float(np.median(walls)), "cpu": float(np.median(cpus))}


def collapsed(team) -> dict[str, float]:
    """The bound and its gradient, n = 400,000, m = 512."""
    n, m = int(os.environ.get("TEAM_ROWS", 400_000)), 512
    data = team.share(rows(n))
    model = models.SGPR(Z=data.shared.X[:m], mean=0.0).prepare(data.shared)
    target = ppgp.Target(model, data)
    z = 0.1 * torch.ones(target.dim, dtype=torch.float64)
    before = team.bytes_reduced
    target.value_and_grad(z)
    sent = team.bytes_reduced - before
    return timed(team, lambda: target.value_and_grad(z)) | {"bytes": sent, "p": target.dim}


def stochastic(team) -> dict[str, float]:
    """A natural step and a gradient, m = 512, 4,096 rows a rank: seconds for each row of all."""
    data = team.share(rows(40_000))
    model = models.SVGP(Z=data.shared.X[:512], mean=0.0).prepare(data.shared)
    target = ppgp.Target(model, data, optimise_params=True, collapsed_elbo=True)
    z = target.origin()
    steps = NaturalSteps(target, model, data, z)
    own = torch.arange(4096)

    def step() -> None:
        steps.step(z.clone(), own, 0.1)
        target.value_and_grad(z, own, jacobian=False)

    found = timed(team, step)
    return {name: value / (4096 * team.size) for name, value in found.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    team = ppgp.Team.of_environment()
    found = {"collapsed": collapsed, "stochastic": stochastic}[sys.argv[1]](team)
    if team.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(found))
