"""The numbers that tests/bench/test_team_accuracy.py compares: run alone or by torchrun."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

import ppgp
from ppgp import inference, kernels, models
from ppgp.inference.variational.collapsed_svi import NaturalSteps

N, M = 60_000, 256
BATCH = 6_000  # divides between two and three ranks


def air(path: str) -> ppgp.Dataset:
    """Return 60,000 rows of nine columns, in an order of their own."""
    raw = np.load(path)
    chosen = np.random.default_rng(0).permutation(len(raw["pm25"]))[:N]
    return ppgp.Dataset(raw["X"][chosen].astype(float), raw["pm25"][chosen].astype(float))


def main(path: str, parts: int, out: Path) -> None:
    team = ppgp.Team.of_environment()
    whole = air(path).standardised()[0]
    data = team.share(whole)
    results: dict = {}
    sparse = models.SGPR(kernels.ARD(kernels.RBF()), Z=whole.X[:M], mean=0.0)
    target = ppgp.Target(sparse.prepare(data.shared), data)
    z = torch.linspace(-0.5, 0.5, target.dim, dtype=torch.float64)
    value, gradient = target.value_and_grad(z)
    results["bound"], results["gradient"] = float(value), gradient.tolist()
    isotropic = models.SGPR(Z=whole.X[:M], mean=0.0)  # whose search has one end
    some = ppgp.fit(sparse, data, inference.MAP(steps=50), standardise=False, progress=False)
    results["after 50 iterations"] = [some.theta[name].tolist() for name in sorted(some.theta)]
    posterior = ppgp.fit(isotropic, data, inference.MAP(), standardise=False, progress=False)
    results["end"] = [posterior.theta[name].tolist() for name in sorted(posterior.theta)]
    results["density at the end"] = posterior.stats["log_density"]
    stochastic = models.SVGP(Z=whole.X[:M], mean=0.0).prepare(data.shared)
    target = ppgp.Target(stochastic, data, optimise_params=True, collapsed_elbo=True)
    z = target.origin()
    step = NaturalSteps(target, stochastic, data, z)
    results["elbo before a natural step"] = step.step(z, None, 0.5)
    results["natural step"] = z.tolist()
    share, first = BATCH // parts, N // parts
    own = torch.arange(share)
    if team.alone:  # the rows of the batches of all ranks
        own = torch.cat([r * first + torch.arange(share) for r in range(parts)])
    value, gradient = target.value_and_grad(z, own, jacobian=False)
    results["elbo of a batch"], results["gradient of a batch"] = float(value), gradient.tolist()
    (out / f"rank {team.rank} of {team.size}, {parts}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
