"""The covariance between rows in single precision: its bound, and slopes at equal rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ppgp.kernels import RBF, distance

VARIANCE, LENGTHSCALE = 1.7, 0.9
MANY_COLUMNS = 6  # where the exponent comes from one product of matrices


def covariance(X: Tensor, Z: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the covariance of X with Z, and the slopes of its sum in the variance and in X."""
    variance = X.new_tensor(VARIANCE).requires_grad_(True)
    X = X.clone().requires_grad_(True)
    theta = {"variance": variance, "lengthscale": X.new_tensor(LENGTHSCALE)}
    K = RBF()(theta, X, Z)
    return K.detach(), list(torch.autograd.grad(K.sum(), [variance, X]))


def test_it_is_at_most_the_variance_and_its_slopes_are_those_of_double_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    X = 100 * torch.randn(30, MANY_COLUMNS, generator=generator)
    Z = X + 0.1 * torch.randn(30, MANY_COLUMNS, generator=generator)
    Z[:15] = X[:15]
    K, slopes = covariance(X, Z)
    exact, exact_slopes = covariance(X.double(), Z.double())
    eps = torch.finfo(torch.float32).eps
    assert float(K.max()) <= VARIANCE * (1 + 2 * eps)
    torch.testing.assert_close(K.double(), exact, rtol=20 * eps, atol=1e-30)
    for slope, right in zip(slopes, exact_slopes, strict=True):
        torch.testing.assert_close(slope.double(), right, rtol=20 * eps, atol=100 * eps)


def test_rows_too_far_for_single_precision_have_no_covariance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under a trace, where values are not known, no column counts as far."""
    monkeypatch.setattr(distance, "FAR", math.inf)
    X = torch.zeros(1, MANY_COLUMNS)
    K, slopes = covariance(X, X + 1e22)
    assert torch.equal(K, torch.zeros(1, 1))
    assert all(torch.equal(slope, torch.zeros_like(slope)) for slope in slopes)
