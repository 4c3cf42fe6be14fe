"""Squared distances against the plain sum over columns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ppgp.kernels import RBF, Exponential
from ppgp.kernels.distance import TINY, distance, squared_distance


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
def test_the_distance_of_a_row_to_itself_is_zero_to_the_bit(d: int) -> None:
    found = distance(rows(9, d, 1e3), None, torch.ones(1, 1).double()).diagonal()
    assert torch.equal(found, torch.full_like(found, TINY**0.5))


@pytest.mark.parametrize("d", [2, 4])
@pytest.mark.parametrize("k", [RBF(variance=1.0), Exponential(variance=1.0)], ids=repr)
def test_the_slope_in_X_is_zero_at_equal_rows(d: int, k: RBF) -> None:
    X = rows(1, d).expand(3, d).clone().requires_grad_()
    theta = {"lengthscale": torch.ones((), dtype=torch.float64)}
    (gradient,) = torch.autograd.grad(k(theta, X).sum(), X)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


@pytest.mark.parametrize("d", [1, 4])
def test_the_distance_is_the_root_and_flat_at_zero(d: int) -> None:
    X = rows(5, d)[[0, 1, 2, 1]].requires_grad_()
    found = distance(X, None, torch.ones(1, 1).double())
    torch.testing.assert_close(found, torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist"), rtol=1e-12, atol=1e-7)
    (gradient,) = torch.autograd.grad(found.diagonal().sum() + found[1, 3], X)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)
