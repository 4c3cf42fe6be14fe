"""Training rows of programs, whatever the plates of y."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import conformal, inference
from ppgp.errors import DataWarning

F64 = torch.float64
X = torch.randn(3, 8, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
Y = X[..., 0] + torch.randn(3, 8, generator=torch.Generator().manual_seed(1), dtype=F64)


def weights() -> Tensor:
    return pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 10.0).to_event(1))


def nested(x: Tensor, y: Tensor | None = None) -> None:
    w = weights()
    with pyro.plate("groups", x.shape[0], dim=-2), pyro.plate("rows", x.shape[1], dim=-1):
        pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def column(x: Tensor, y: Tensor | None = None) -> None:
    w = weights()
    with pyro.plate("rows", len(x), dim=-2):
        pyro.sample("y", dist.Normal((x @ w)[:, None], 1.0), obs=y)


def batches(x: Tensor, y: Tensor | None = None) -> None:
    w = weights()
    with pyro.plate("rows", len(x), subsample_size=None if y is None else 5) as i:
        pyro.sample("y", dist.Normal(x[i] @ w, 1.0), obs=None if y is None else y[i])


def batches_of_columns(x: Tensor, y: Tensor | None = None) -> None:
    """Rows are taken along the first of two plates."""
    w = weights()
    inner = pyro.plate("repeats", x.shape[1], dim=-1)
    with pyro.plate("rows", len(x), subsample_size=None if y is None else 2, dim=-2) as i, inner:
        pyro.sample("y", dist.Normal(x[i] @ w, 1.0), obs=None if y is None else y[i])


def renamed(x: Tensor, y: Tensor | None = None) -> None:
    w = weights()
    with pyro.plate("rows", len(x)):
        pyro.sample("new" if y is None else "y", dist.Normal(x @ w, 1.0), obs=y)


def factor(x: Tensor, y: Tensor | None = None) -> None:
    w = weights()
    with pyro.plate("rows", len(x)):
        law = dist.Normal(x @ w, 1.0)
        if y is None:
            pyro.sample("y", law)
        else:
            pyro.factor("likelihood", law.log_prob(y))


def region(program: Any, x: Tensor, y: Tensor, old: Tensor, old_y: Tensor) -> ppgp.Region:
    """Return sets calibrated at ``old``, of a program that was fitted to x and y."""
    posterior = ppgp.fit(
        program, {"x": x, "y": y}, inference.SVI("normal", steps=3, draws=4), progress=False
    )
    calibrator = ppgp.calibrate(conformal.Absolute(), posterior.predict(x=old), old_y.flatten())
    return calibrator(posterior.predict(x=old + 1.0), 0.8)


FLAT = (X.reshape(24, 2), Y.reshape(24))
CASES: dict[str, tuple[Any, Tensor, Tensor, Tensor, Tensor]] = {
    "nested": (nested, X, Y, X, Y),
    "some groups": (nested, X, Y, X[1:], Y[1:]),
    "column": (column, FLAT[0], FLAT[1][:, None], FLAT[0][9:], FLAT[1][9:]),
    "batches": (batches, *FLAT, FLAT[0][:9], FLAT[1][:9]),
    "batches of columns": (batches_of_columns, X, Y, X[1:], Y[1:]),
    "renamed": (renamed, *FLAT, FLAT[0][:9], FLAT[1][:9]),
}


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("case", CASES)
def test_training_rows_are_recognised(case: str) -> None:
    program, x, y, old, old_y = CASES[case]
    n = old_y.numel()
    with pytest.warns(DataWarning, match=f"{n} of {n}"):
        assert region(program, x, y, old, old_y).guarantee.startswith("heuristic")
    sentence = region(program, x, y, old + 0.1, old_y + 0.1).guarantee
    assert sentence.startswith("marginal coverage >= 0.8")


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_sets_are_heuristic_where_training_rows_cannot_be_recognised() -> None:
    sentence = region(factor, *FLAT, FLAT[0][:9], FLAT[1][:9]).guarantee
    assert sentence.startswith("heuristic: calibration rows may have been used in the fit")
