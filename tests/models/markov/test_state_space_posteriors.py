"""Posteriors of StateSpaceGP: in ArviZ, in files and in estimators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import ppgp
from ppgp import inference
from ppgp.data import Dataset
from ppgp.estimators import ProbabilisticRegressor
from ppgp.kernels import Matern
from ppgp.models import StateSpaceGP
from ppgp.priors import Normal

pytestmark = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def table(n: int, d: int = 1) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(X, torch.sin(8 * X[:, 0]) + X[:, 1:].sum(1) + 0.2 * noise)


@pytest.mark.parametrize("d", [1, 3])
def test_a_fit_goes_to_arviz_and_to_a_file(d: int, tmp_path: Path) -> None:
    data = table(300, d)
    model = StateSpaceGP(Matern(1.5), regressors=Normal() if d > 1 else None)
    posterior = ppgp.fit(model, data, inference.Laplace(draws=20), progress=False)
    assert posterior.to_arviz().log_likelihood["y"].shape == (1, 20, data.n)
    again = ppgp.load_posterior(posterior.save(tmp_path / "fit"))
    assert torch.equal(again.predict(data.X[:4]).mean, posterior.predict(data.X[:4]).mean)
    assert again.recipe == posterior.recipe


@pytest.mark.parametrize("d", [1, 2])
def test_estimators_know_it(d: int) -> None:
    data = table(50, d)
    X, y = data.X.numpy(), data.y.numpy()
    model = "state_space" if d == 1 else StateSpaceGP(regressors=Normal())
    mean = ProbabilisticRegressor(model, "map").fit(X[:40], y[:40]).predict(X[40:])
    assert float(np.square(mean - y[40:]).mean()) < 0.2 * float(y.var())
