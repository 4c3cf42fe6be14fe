"""MAP of a Bayesian network d-50-1 by Gauss-Newton, beside L-BFGS and Adam from the same weights.

The time of a search is CPU time, compilation included. Its path is known from ``losses``.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
from uci import split

from ppgp.density import Target
from ppgp.inference import MAP
from ppgp.likelihoods import Gaussian
from ppgp.models import NeuralRegression
from ppgp.networks.networks import MLP
from ppgp.priors import Normal

#: iterations, which take 8 seconds or more
SEARCHES = {"gauss_newton": 1000, "lbfgs": 10_000, "adam": 10_000}
#: variance of the noise of standardised targets; None: a site with its default prior
NOISE = {"energy": 0.01, "concrete": 0.1}
NEAR, LEVELS = 1.0, (100.0, 30.0, 10.0, 3.0, 1.0)


def path_of_search(optimizer: str, model: Any, data: Any) -> list[tuple[float, float]]:
    """Return the CPU seconds and the log density at each evaluation or step."""
    started = time.process_time()
    posterior = MAP(optimizer, steps=SEARCHES[optimizer], starts=1)(Target(model, data, True))
    seconds = time.process_time() - started
    values = (-posterior.stats["losses"]).tolist()
    return [(seconds * (i + 1) / len(values), value) for i, value in enumerate(values)]


def first_time(path: list[tuple[float, float]], level: float) -> float:
    return next((seconds for seconds, value in path if value >= level), math.inf)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("noise", ["number", "prior"])
@pytest.mark.parametrize("name", NOISE)
def test_seconds_to_the_mode(name: str, noise: str, benchmark: Any, data_dir: Path) -> None:
    train, _ = split(data_dir, name)
    likelihood = Gaussian() if noise == "prior" else Gaussian(noise=NOISE[name])
    network = MLP(hidden=(50,), activation="tanh", dropout=0.0)
    model = NeuralRegression(network, likelihood, Normal(0, 1)).prepare(train)
    MAP("gauss_newton", steps=2, starts=1)(Target(model, train, True))  # imports
    paths = {optimizer: path_of_search(optimizer, model, train) for optimizer in SEARCHES}
    best = max(value for path in paths.values() for _, value in path)
    print(f"\n{name}, {noise} as noise: CPU seconds to within so many nats of the best {best:.1f}")
    for optimizer, path in paths.items():
        reached = "".join(
            f"{level:6.0f}: {first_time(path, best - level):6.2f}" for level in LEVELS
        )
        end = max(value for _, value in path)
        print(f"  {optimizer:<13}{reached}   end {end - best:8.2f} after {path[-1][0]:5.1f}")
    benchmark.pedantic(
        MAP("gauss_newton", steps=20, starts=1), (Target(model, train, True),), rounds=1
    )
    assert max(value for _, value in paths["gauss_newton"]) >= best - NEAR
