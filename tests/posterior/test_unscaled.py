"""The Scaler of data that were left as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from safetensors import safe_open

import ppgp
from ppgp import inference, models
from ppgp.data import Dataset
from ppgp.data.dataset import IdentityScaler
from ppgp.posterior import Posterior

X = torch.linspace(-1, 2, 12, dtype=torch.float64)[:, None]
Y = X[:, 0].sin() + 3.0


def of_a_table() -> Posterior:
    data = Dataset(X, Y, noise_sd=0.1)
    return ppgp.fit(models.GP(), data, inference.MAP(), standardise=False, progress=False)


def line(x: Any, y: Any = None) -> None:
    level = pyro.sample("level", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(level + x, 1.0), obs=y)


def of_a_program() -> Posterior:
    return ppgp.fit(line, {"x": X[:, 0], "y": Y}, inference.Laplace(draws=5), progress=False)


@pytest.mark.parametrize("fitted", [of_a_table, of_a_program])
def test_a_fit_that_scales_nothing_has_the_identity_which_a_file_leaves_out(
    fitted: Any, tmp_path: Path
) -> None:
    posterior = fitted()
    assert posterior.scaler.is_identity
    assert posterior.scaler.back(posterior.data) is posterior.data
    assert posterior.scaler.targets(Y) is posterior.scaler.targets_back(Y) is Y
    assert "standardised" not in repr(posterior)
    path = posterior.save(tmp_path / "file")
    with safe_open(str(path), "pt") as file:
        fields = json.loads(file.metadata()["record"])["fields"]
    assert fields["scaler"] is None
    found = ppgp.load_posterior(path, model=line)
    assert found.scaler.is_identity
    assert found.scaler.x_mean.shape == posterior.scaler.x_mean.shape


def test_none_as_scaler_stands_for_the_identity() -> None:
    posterior = of_a_table()
    left: Any = None
    same = Posterior(posterior.model, posterior.data, posterior.draws, posterior.how, scaler=left)
    assert isinstance(same.scaler, IdentityScaler)
    assert not posterior.scaler.like(Dataset(X, Y).standardised()[1])
    moved = same.scaler.to(torch.float32)
    assert moved.is_identity
    assert moved.x_sd.dtype == torch.float32


def test_the_identity_still_checks_the_columns_of_new_rows() -> None:
    with pytest.raises(ppgp.errors.DataError, match="1 column, as in training"):
        of_a_table().predict(torch.zeros(3, 2, dtype=torch.float64))
