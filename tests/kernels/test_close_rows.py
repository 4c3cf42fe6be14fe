"""Distances between nearly equal rows keep their digits, with many columns too."""

from __future__ import annotations

import torch

from ppgp.kernels import Exponential
from ppgp.kernels.distance import squared_distance

ONE = torch.ones(1, 1, dtype=torch.float64)


def by_differences(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return (A[..., :, None, :] - B[..., None, :, :]).square().sum(-1)


def rows_with_duplicates() -> torch.Tensor:
    torch.manual_seed(0)
    X = torch.randn(60, 6, dtype=torch.float64)
    X[30:] = X[:30]
    X[40:50] += 1e-7 * torch.randn(10, 6, dtype=torch.float64)
    return X


def test_close_rows_are_computed_by_differences() -> None:
    X = rows_with_duplicates()
    for other in (None, X, X[:7]):
        B = X if other is None else other
        wanted = by_differences(X, B)
        found = squared_distance(X, other, ONE)
        close = wanted < 1e-6
        torch.testing.assert_close(found[close], wanted[close], rtol=1e-7, atol=0.0)
        torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-13)


def test_batches_of_rows() -> None:
    X = rows_with_duplicates().reshape(3, 1, 20, 6)
    X[1, 0, 10:] = X[1, 0, :10]
    B = X[:, 0, :8].unsqueeze(0)
    found = squared_distance(X, B, ONE)
    wanted = by_differences(X, B)
    assert found.shape == (3, 3, 20, 8)
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-13)
    assert float(found[wanted == 0].abs().max()) == 0


def test_equal_rows_alone() -> None:
    X = torch.ones(5, 6, dtype=torch.float64) * 0.1
    assert float(squared_distance(X, X.clone(), ONE).abs().max()) == 0


def test_a_covariance_of_duplicates_is_that_of_the_diagonal() -> None:
    """The square root of a rounding error would show under an exponential kernel."""
    X = rows_with_duplicates()
    K = Exponential(variance=1.0, lengthscale=1.0)({}, X, X)
    duplicates = torch.arange(30)[:10]
    torch.testing.assert_close(K[duplicates, duplicates + 30], torch.ones(10, dtype=X.dtype))
    assert bool((K[duplicates, duplicates + 30] == 1).all())


def test_slopes_with_respect_to_the_rows() -> None:
    X = rows_with_duplicates()[:, :5].requires_grad_()
    weight = torch.rand(60, 60, dtype=torch.float64)
    (found,) = torch.autograd.grad((weight * squared_distance(X, None, ONE)).sum(), X)
    (wanted,) = torch.autograd.grad((weight * by_differences(X, X)).sum(), X)
    torch.testing.assert_close(found, wanted)
