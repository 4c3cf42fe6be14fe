"""The seconds that a fit of each Gaussian process takes: ppgp/models/advice/costs.json.

``python tests/tools/costs.py`` measures and prints them, and with ``--write`` replaces the file
that ``ppgp.advise`` reads. Each model is fitted to simulated rows of two sizes on one thread, by
``MAP(starts=1)``, SVGP by ``SVI(batch_size=1000)``. Non-negative least squares then gives the
factors of the terms that ``ppgp.models.advice.costs`` names.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

import ppgp
from ppgp import Dataset, inference, likelihoods, models
from ppgp.models.advice.costs import COSTS, TERMS

D = 2
#: model -> (recipe, method, two numbers of rows)
FITS: dict[str, tuple[Callable[[], Any], Any, tuple[int, int]]] = {
    "GP": (models.GP, inference.MAP(starts=1), (300, 2000)),
    "LatentGP": (
        lambda: models.GP(likelihood=likelihoods.Bernoulli()),
        inference.MAP(starts=1),
        (200, 1000),
    ),
    "StateSpaceGP": (models.StateSpaceGP, inference.MAP(starts=1), (1_000, 40_000)),
    "LatentStateSpaceGP": (
        lambda: models.StateSpaceGP(likelihood=likelihoods.Bernoulli()),
        inference.MAP(starts=1),
        (1_000, 40_000),
    ),
    "GridGP": (models.GridGP, inference.MAP(starts=1), (30**2, 120**2)),
    "Vecchia": (models.Vecchia, inference.MAP(starts=1), (3_000, 8_000)),
    "LatentVecchia": (
        lambda: models.Vecchia(likelihood=likelihoods.Bernoulli()),
        inference.MAP(starts=1),
        (1_000, 4_000),
    ),
    "SKI": (lambda: models.SKI(grid=32), inference.MAP(starts=1), (2_000, 200_000)),
    "SGPR": (models.SGPR, inference.MAP(starts=1), (1_000, 8_000)),
    "SVGP": (models.SVGP, inference.SVI(batch_size=1000, steps=100), (2_000, 100_000)),
}


def rows(name: str, n: int) -> Dataset:
    """Return rows of a wave with noise, which suit the model."""
    generator = torch.Generator().manual_seed(0)
    d = 1 if name.endswith("StateSpaceGP") else D
    X = 3 * torch.rand(n, d, generator=generator, dtype=torch.float64)
    if name == "GridGP":
        axis = torch.linspace(0, 3, round(n**0.5), dtype=torch.float64)
        X = torch.cartesian_prod(axis, axis)
    f = torch.sin(5 * X).prod(1)
    y = f + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(X, (y > 0).to(X) if name.startswith("Latent") else y)


def seconds_of_fit(model: Any, data: Dataset, how: Any) -> float:
    """Return the CPU seconds of a fit; of SVI, extrapolated from few steps to the usual number."""
    started = time.process_time()
    ppgp.fit(model, data, how, progress=False)
    taken = time.process_time() - started
    if not isinstance(how, inference.SVI):
        return taken
    started = time.process_time()
    ppgp.fit(model, data, replace(how, steps=2 * how.steps), progress=False)
    a_step = (time.process_time() - started - taken) / how.steps
    return taken + a_step * (inference.SVI().steps - how.steps)


def measured() -> dict[str, dict[str, float]]:
    """Return {model: {term: seconds}}."""
    ppgp.fit(models.GP(), rows("GP", 50), inference.MAP(starts=1), progress=False)  # imports
    costs = {}
    for name, (recipe, how, sizes) in FITS.items():
        seconds, table = [], []
        for n in sizes:
            data = rows(name, n)
            seconds.append(seconds_of_fit(recipe(), data, how))
            table.append([term(n, data.d) for term in TERMS[name].values()])
            print(f"{name}, {n:,} rows: {seconds[-1]:.2f} s", file=sys.stderr)
        # in parts of the seconds themselves, so that the small table counts as much
        relative = np.array(table) / np.array(seconds)[:, None]
        factors, _ = nnls(relative, np.ones(len(sizes)))
        costs[name] = {
            term: float(f"{factor:.2g}") for term, factor in zip(TERMS[name], factors, strict=True)
        }
    return costs


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with threadpool_limits(1):
        text = json.dumps(measured(), indent=2) + "\n"
    if "--write" in sys.argv:
        COSTS.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
