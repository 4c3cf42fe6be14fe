"""``compare`` of users' programs."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.errors import NotApplicable
from ppgp.inference import Laplace
from ppgp.models import Program

F64 = torch.float64


def program(X: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(X)):
        pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def test_test_rows_are_refused_in_one_sentence() -> None:
    X = torch.eye(2, dtype=F64)
    posterior = ppgp.Posterior(
        Program(program), {"X": X, "y": X[0]}, {"w": X[None]}, Laplace(draws=2)
    )
    with pytest.raises(NotApplicable, match="got a program as 'mine': leave test out"):
        ppgp.compare({"mine": posterior}, test=ppgp.Dataset(X, X[0]))
