"""Squared distances against the plain sum over columns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ppgp.kernels import RBF, Exponential
from ppgp.kernels.distance import distance, squared_distance


def rows(n: int, d: int, offset: float = 0.0) -> Tensor:
    return offset + torch.randn(n, d, generator=torch.Generator().manual_seed(n * 100 + d), dtype=torch.float64)


@pytest.mark.parametrize("d", [1, 3, 4, 12])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_equals_the_sum_over_columns(d: int, offset: float) -> None:
    A, B, lengthscale = rows(6, d, offset), rows(4, d, offset), torch.tensor([[0.7]], dtype=torch.float64)
    for one, other in ((A, B), (A, A)):
        plain = (one[:, None] - other[None]).square().sum(-1) / 0.49
        given = None if other is one else other
        torch.testing.assert_close(squared_distance(one, given, lengthscale), plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", [1, 4])
def test_the_diagonal_is_exactly_zero(d: int) -> None:
    assert torch.equal(squared_distance(rows(9, d, 1e3), None, torch.ones(1, 1).double()).diagonal(), torch.zeros(9).double())


@pytest.mark.parametrize("d", [2, 4])
@pytest.mark.parametrize("k", [RBF(variance=1.0), Exponential(variance=1.0)], ids=repr)
def test_the_slope_in_X_is_zero_at_equal_rows(d: int, k: RBF) -> None:
    X = rows(1, d).expand(3, d).clone().requires_grad_()
    theta = {"lengthscale": torch.ones((), dtype=torch.float64)}
    (gradient,) = torch.autograd.grad(k(theta, X).sum(), X)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


def test_the_root_of_zero_is_tiny_and_flat() -> None:
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    root = distance(zero)
    assert float(root.detach()) <= 1e-17
    assert float(torch.autograd.grad(root, zero)[0]) == 0.0
