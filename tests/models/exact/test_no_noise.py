"""Values without noise, as of a simulator: one search ends where the best of several does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, models

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "polynomial": lambda X: X[:, 0] ** 2 - X[:, 1],
    "waves": lambda X: np.sin(2 * X[:, 0]) * X[:, 1],
    "growth": lambda X: np.exp(-X[:, 0]) * np.cos(X[:, 1]),
}


def simulated(name: str, scale: float = 1.0) -> Dataset:
    X = np.random.default_rng(1).uniform(-2, 2, (100, 2))
    return Dataset(X, scale * FUNCTIONS[name](X))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_search_ends_within_a_nat_of_the_best_of_four(name: str) -> None:
    data = simulated(name)
    one, best = (
        ppgp.fit(models.GP(), data, inference.MAP(starts=starts), progress=False)
        for starts in (1, 4)
    )
    assert one.warnings == ()
    assert one.stats["log_density"] > best.stats["log_density"] - 1
    # interpolated to about the floor of the noise, 2e-4 of the sd of y
    errors = one.predict(data.X).mean - data.y
    assert float(errors.abs().max()) < 1e-3 * float(data.y.std())


def test_the_floor_is_relative_to_the_data() -> None:
    spreads = []
    for scale in (1.0, 1e-6):
        data = simulated("waves", scale)
        posterior = ppgp.fit(models.GP(), data, inference.MAP(), progress=False)
        spreads.append(float(posterior.predict(data.X).std.min()) / scale)
    assert spreads[0] == pytest.approx(spreads[1], rel=1e-2)


def test_a_noise_that_is_estimated_above_the_floor_is_left_alone() -> None:
    X = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None]
    model = models.GP(kernels.RBF(1.0, 0.3), standardised=True)
    theta = {"noise": torch.tensor(0.01, dtype=torch.float64)}
    C = model._covariance(theta, X)
    plain = kernels.RBF(1.0, 0.3)({}, X) + 0.01 * torch.eye(30, dtype=torch.float64)
    torch.testing.assert_close(C, plain, rtol=1e-12, atol=0)
