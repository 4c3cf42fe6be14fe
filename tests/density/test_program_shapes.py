"""Shapes of a program's sites: no outer product of data and distribution is fitted."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.errors import DataError

F64 = torch.float64
X = torch.linspace(-1, 1, 40, dtype=F64)
Y = 3 * X + 0.5 * torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=F64)
PRIOR = dist.Normal(torch.zeros((), dtype=F64), 5.0)


def fitted(program: Any, **data: Any) -> ppgp.Posterior:
    return ppgp.fit(program, data, inference.MAP(), progress=False)


def rows(x: Tensor, y: Tensor, plate: bool = True, dim: int = -1) -> None:
    b = pyro.sample("b", PRIOR)
    law = dist.Normal(b * x, 0.5)
    if plate:
        with pyro.plate("rows", len(x), dim=dim):
            pyro.sample("y", law, obs=y)
    else:
        pyro.sample("y", law, obs=y)


@pytest.mark.parametrize("plate", [True, False])
@pytest.mark.parametrize(("x", "y"), [(X, Y[:, None]), (X[:, None], Y)])
def test_an_outer_product_of_data_and_location_is_refused(
    x: Tensor, y: Tensor, plate: bool
) -> None:
    with pytest.raises(DataError, match=r"'y'.*\[40, 40\].*squeeze"):
        fitted(rows, x=x, y=y, plate=plate)


def test_a_plate_in_another_dimension_than_the_rows_is_refused() -> None:
    with pytest.raises(DataError, match=r"\[40, 1\] in plate 'rows'"):
        fitted(rows, x=X, y=Y, dim=-2)


def test_a_mask_of_another_shape_is_refused() -> None:
    def program(x: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", PRIOR)
        kept: Any = (x > 0)[:, None]
        with pyro.plate("rows", len(x)), poutine.mask(mask=kept):
            pyro.sample("y", dist.Normal(b * x, 0.5), obs=y)

    with pytest.raises(DataError, match="'y'"):
        fitted(program, x=X, y=Y)


def test_columns_on_both_sides_and_batches_beyond_the_plate_are_fitted() -> None:
    def two(x: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", PRIOR)
        with pyro.plate("rows", x.shape[-1]):
            pyro.sample("y", dist.Normal(b * x, 0.5), obs=y)

    exact = float((X @ Y / 0.25) / (X @ X / 0.25 + 1 / 25))
    found = fitted(rows, x=X[:, None], y=Y[:, None], plate=False)
    assert float(found.draws["b"]) == pytest.approx(exact, abs=1e-6)
    found = fitted(two, x=X.reshape(2, 20), y=Y.reshape(2, 20))
    assert float(found.draws["b"]) == pytest.approx(exact, abs=1e-6)


def test_a_number_stands_for_every_row_of_a_plate() -> None:
    def program(n: int, y: Tensor) -> None:
        b = pyro.sample("b", PRIOR)
        with pyro.plate("rows", n):
            pyro.sample("y", dist.Normal(b, 0.5), obs=y)

    found = fitted(program, n=3, y=torch.ones((), dtype=F64))
    assert float(found.draws["b"]) == pytest.approx(12 / (12 + 1 / 25), abs=1e-6)
