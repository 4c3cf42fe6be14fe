"""Cholesky factors: which matrices get jitter, how much, and what the error states."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from ppgp.errors import NumericalError, NumericalWarning
from ppgp.kernels import RBF
from ppgp.numerics.cholesky import add_diagonal, cholesky


def gram(X: Tensor, lengthscale: float = 1.0) -> Tensor:
    return RBF(variance=1.0, lengthscale=lengthscale)({}, X)


def spaced(n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.arange(n, dtype=dtype)[:, None]


def test_a_positive_definite_matrix_is_factored_as_torch_does_without_a_warning() -> None:
    C = gram(spaced(5)) + torch.eye(5, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(cholesky(C), torch.linalg.cholesky(C))


def test_the_warning_states_the_jitter_and_the_matrix() -> None:
    C = 4.0 * torch.ones(3, 3, dtype=torch.float64)
    with pytest.warns(
        NumericalWarning,
        match=r"the toy matrix was not positive definite; 4e-12 \(1e-12 of its mean diagonal\)",
    ):
        L = cholesky(C, "toy matrix")
    torch.testing.assert_close(
        L @ L.mT, C + 4e-12 * torch.eye(3, dtype=torch.float64), rtol=1e-14, atol=0
    )


def test_jitter_increases_until_it_suffices() -> None:
    C = torch.ones(3, 3, dtype=torch.float64) - 5e-9 * torch.eye(3, dtype=torch.float64)
    with pytest.warns(NumericalWarning, match="1e-08 of its mean diagonal"):
        L = cholesky(C)
    torch.testing.assert_close(
        L @ L.mT - C, 1e-8 * torch.eye(3, dtype=torch.float64), rtol=1e-5, atol=1e-15
    )


def test_in_a_batch_only_the_matrices_that_fail_get_jitter() -> None:
    good = gram(spaced(3)) + torch.eye(3, dtype=torch.float64)
    batch = torch.stack([good, torch.ones_like(good), 2 * good])
    with pytest.warns(NumericalWarning):
        L = cholesky(batch)
    assert torch.equal(L[0], torch.linalg.cholesky(good))
    assert torch.equal(L[2], torch.linalg.cholesky(2 * good))
    assert bool(torch.isfinite(L).all())


def test_the_error_names_duplicate_rows() -> None:
    C = (
        gram(torch.tensor([[0.0], [3.0], [9.0], [3.0], [0.0]], dtype=torch.float64))
        - 1e-4 * torch.eye(5).double()
    )
    with pytest.raises(NumericalError, match="rows 0 and 4, 1 and 3 are duplicates"):
        cholesky(C)


def test_the_error_names_a_lengthscale_that_is_far_too_long() -> None:
    C = gram(spaced(6), lengthscale=1e4) - 1e-4 * torch.eye(6).double()
    with pytest.raises(NumericalError, match="lengthscale is far too long"):
        cholesky(C)


def test_the_error_names_the_rows_that_are_not_finite() -> None:
    X = spaced(5)
    X[3] = torch.nan
    with pytest.raises(NumericalError, match=r"rows? [^;]*3[^;]* not finite"):
        cholesky(gram(X) + torch.eye(5).double())


def test_the_error_names_a_variance_that_is_not_positive() -> None:
    with pytest.raises(NumericalError, match=r"entries \[1\] of its diagonal"):
        cholesky(torch.diag(torch.tensor([1.0, -1.0, 1.0])))


def test_the_error_describes_the_matrix_of_the_batch_that_failed() -> None:
    twins = (
        gram(torch.tensor([[0.0], [3.0], [0.0]], dtype=torch.float64))
        - 1e-4 * torch.eye(3).double()
    )
    with pytest.raises(NumericalError, match="rows 0 and 2 are duplicates"):
        cholesky(torch.stack([torch.eye(3).double(), twins, torch.eye(3).double()]))


def test_the_error_describes_the_matrix_for_which_jitter_did_not_suffice() -> None:
    """Jitter suffices for the first matrix and not for the second."""
    saved = torch.ones(3, 3, dtype=torch.float64)
    lost = torch.diag(torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64))
    with pytest.raises(NumericalError, match=r"entries \[0\] of its diagonal"):
        cholesky(torch.stack([saved, lost]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    assert cholesky(torch.eye(3, dtype=dtype)).dtype == dtype


def test_add_diagonal_accepts_a_scalar_a_vector_or_a_value_per_draw() -> None:
    K = torch.zeros(2, 3, 3)
    assert torch.equal(add_diagonal(K, torch.tensor(2.0))[1], 2 * torch.eye(3))
    assert torch.equal(add_diagonal(K, torch.arange(3.0))[0], torch.diag(torch.arange(3.0)))
    assert torch.equal(add_diagonal(K, torch.tensor([[1.0], [2.0]]))[1], 2 * torch.eye(3))
