"""Squared distances against the plain sum over columns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ppgp.kernels import RBF, Exponential, Kernel, Matern, RationalQuadratic
from ppgp.kernels.distance import TINY, distance, squared_distance


def rows(n: int, d: int, offset: float = 0.0) -> Tensor:
    return offset + torch.randn(
        n, d, generator=torch.Generator().manual_seed(n * 100 + d), dtype=torch.float64
    )


@pytest.mark.parametrize("d", [1, 3, 4, 12])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_equals_the_sum_over_columns(d: int, offset: float) -> None:
    A, B, lengthscale = (
        rows(6, d, offset),
        rows(4, d, offset),
        torch.tensor([[0.7]], dtype=torch.float64),
    )
    for one, other in ((A, B), (A, A)):
        plain = (one[:, None] - other[None]).square().sum(-1) / 0.49
        given = None if other is one else other
        torch.testing.assert_close(
            squared_distance(one, given, lengthscale), plain, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("d", [1, 4])
def test_the_distance_of_a_row_to_itself_is_exactly_zero(d: int) -> None:
    found = distance(rows(9, d, 1e3), None, torch.ones(1, 1).double()).diagonal()
    assert torch.equal(found, torch.full_like(found, TINY**0.5))


@pytest.mark.parametrize("d", [2, 4])
@pytest.mark.parametrize("k", [RBF(variance=1.0), Exponential(variance=1.0)], ids=repr)
def test_the_gradient_in_X_is_zero_at_equal_rows(d: int, k: RBF) -> None:
    X = rows(1, d).expand(3, d).clone().requires_grad_()
    theta = {"lengthscale": torch.ones((), dtype=torch.float64)}
    (gradient,) = torch.autograd.grad(k(theta, X).sum(), X)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


@pytest.mark.parametrize("d", [1, 4])
def test_the_distance_is_the_root_and_flat_at_zero(d: int) -> None:
    X = rows(5, d)[[0, 1, 2, 1]].requires_grad_()
    found = distance(X, None, torch.ones(1, 1).double())
    torch.testing.assert_close(
        found, torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist"), rtol=1e-12, atol=1e-7
    )
    (gradient,) = torch.autograd.grad(found.diagonal().sum() + found[1, 3], X)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


EVERY: list[Kernel] = [
    RBF(2.0, 1.0),
    Exponential(2.0, 1.0),
    Matern(1.5, 2.0, 1.0),
    RationalQuadratic(2.0, 1.0, 1.0),
]


def exact(k: Kernel, A: Tensor, B: Tensor) -> Tensor:
    """Compute each entry from the distance of its two rows, by differences."""
    apart = (A.double()[:, None] - B.double()[None]).square().sum(-1).sqrt()
    return k({}, apart.reshape(-1, 1), torch.zeros(1, 1, dtype=torch.float64)).reshape(apart.shape)


@pytest.mark.parametrize("k", EVERY, ids=repr)
@pytest.mark.parametrize("spread", [1.0, 1e3, 1e6])
def test_single_precision_is_accurate_to_the_rounding_of_its_inputs(
    k: Kernel, spread: float
) -> None:
    """No entry exceeds the variance, and the matrix is positive semi-definite.

    Rows far from their mean have large squares.
    """
    near = rows(40, 6)
    X = (spread * rows(3, 6).repeat_interleave(40, 0)[:40] + near).float()
    Z = X[torch.arange(39, -1, -1)]
    for found, truth in ((k({}, X, Z), exact(k, X, Z)), (k({}, X), exact(k, X, X))):
        assert found.dtype == torch.float32
        assert float(found.max()) <= 2.0 * (1 + 3e-7)
        torch.testing.assert_close(found.double(), truth, rtol=0, atol=1e-6 + 1e-8 * spread)
    least = float(torch.linalg.eigvalsh(k({}, X).double()).min())
    assert least > -1e-5 * 2.0


@pytest.mark.parametrize("k", EVERY, ids=repr)
@pytest.mark.parametrize("ratio", [1e4, 1e7])
def test_columns_of_very_different_spread(k: Kernel, ratio: float) -> None:
    """Differences in a narrow column keep their precision next to a wide column."""
    X = rows(30, 5) * torch.tensor([1.0, ratio, 1.0, 1.0, 0.1], dtype=torch.float64)
    X[15:, 1] = X[:15, 1]
    Z = X + 0.01 * rows(30, 5) * torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(k({}, X, Z), exact(k, X, Z), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(k({}, X), exact(k, X, X), rtol=1e-9, atol=1e-9)
    assert float(k({}, X, X.clone()).max()) <= 2.0 * (1 + 1e-12)


@pytest.mark.parametrize("k", EVERY[:2], ids=repr)
def test_gradients_by_differences_and_by_the_product_agree(k: Kernel) -> None:
    X, weight = rows(12, 5), rows(12, 12)
    slopes = []
    for scale in (1.0, 1.0 + 1e-12):
        A = X.clone().requires_grad_()
        far = torch.cat([A, (5e3 if scale > 1 else 0.0) * torch.ones(12, 1)], 1)
        far = torch.cat(
            [far, far.detach()[:1] - torch.tensor([0.0] * 5 + [1e4 if scale > 1 else 0.0])]
        )
        (slope,) = torch.autograd.grad((weight * k({}, far, far[:12])[:12]).sum(), A)
        slopes.append(slope)
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-7, atol=1e-9)
