"""Products and solves with lower triangular matrices, against those of full matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ppgp.numerics import triangles
from ppgp.numerics.triangles import (
    between_inverses,
    inverse_of_product,
    lower_half,
    lower_times,
    solved,
    solved_transposed,
    transposed_times,
)

F64 = torch.float64
EPS = torch.finfo(F64).eps


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def lower(m: int, *batch: int) -> Tensor:
    """Return a well-conditioned lower triangular matrix."""
    return (normal(*batch, m, m, seed=1) / m + torch.eye(m, dtype=F64)).tril()


def assert_close(found: Tensor, right: Tensor, size: float) -> None:
    """Assert that no entry differs by more than ``size``."""
    torch.testing.assert_close(found, right, rtol=0.0, atol=size)


@pytest.fixture(params=[1, 2, 3, 7, 256])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(triangles, "BLOCK", request.param)
    return request.param


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("m", [1, 6, 7])
def test_products_are_those_of_full_matrices(m: int, batch: tuple[int, ...]) -> None:
    W, X, Y = lower(m, *batch), normal(*batch, m, 4), normal(*batch, m, 4, seed=2)
    size = 100 * EPS
    assert_close(lower_times(W, X), W @ X, size)
    assert_close(transposed_times(W, X), W.mT @ X, size)
    assert_close(lower_half(X, Y).tril(), (X @ Y.mT).tril(), size)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("m", [1, 6, 7])
def test_solves_undo_products(m: int, batch: tuple[int, ...]) -> None:
    L, B = lower(m, *batch), normal(*batch, m, 4)
    S = normal(*batch, m, m, seed=3)
    size = 1000 * EPS
    assert_close(L @ solved(L, B), B, size)
    assert_close(L.mT @ solved_transposed(L, B), B, size)
    X = between_inverses(L, S)
    assert torch.equal(X, X.mT)
    assert_close((L.mT @ X @ L).tril(), S.tril(), size)


@pytest.mark.parametrize("m", [256, 257, 700])
def test_sizes_around_a_block(m: int) -> None:
    L, X = lower(m), normal(m, 3)
    S = X @ X.mT
    size = 1e4 * EPS
    assert_close(transposed_times(L, X), L.mT @ X, size)
    assert_close(lower_times(L, X), L @ X, size)
    assert_close(L.mT @ between_inverses(L, S.tril()) @ L, S, size)


def test_right_hand_sides_in_row_major_memory_stay_so() -> None:
    """Elementwise operations on matrices in different memory orders take ten times as long."""
    L, B = lower(5), normal(5, 4)
    assert solved(L, B).is_contiguous()
    assert solved_transposed(L, B).is_contiguous()


@pytest.mark.usefixtures("block")
def test_derivatives() -> None:
    L, S = lower(5).requires_grad_(True), normal(5, 5).requires_grad_(True)
    X = normal(5, 3).requires_grad_(True)

    def every(L: Tensor, S: Tensor, X: Tensor) -> tuple[Tensor, ...]:
        W = L.tril()
        both = between_inverses(W, S)
        return (
            lower_times(W, X),
            transposed_times(W, X),
            lower_half(X, S @ X).tril(),
            solved(W, X),
            solved_transposed(W, X),
            both,
        )

    assert torch.autograd.gradcheck(every, (L, S, X))


def test_it_maps_over_matrices() -> None:
    L, S = lower(7, 3), normal(3, 7, 7)
    many = torch.vmap(between_inverses)(L, S)
    one_by_one = torch.stack([between_inverses(a, b) for a, b in zip(L, S, strict=True)])
    assert_close(many, one_by_one, 100 * EPS)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("m", [1, 127, 128, 129, 300, 513])
def test_the_inverse_of_a_product(m: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triangles, "BY_PRODUCTS", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    L = lower(m)
    found = inverse_of_product(L)
    expected = torch.linalg.inv(L @ L.mT)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=0, atol=10 * m * EPS)


def test_the_inverse_of_a_product_has_derivatives() -> None:
    L = lower(4).requires_grad_()
    assert torch.autograd.gradcheck(lambda L: inverse_of_product(L.tril()), L)
    many = torch.stack([lower(3), 2 * lower(3)])
    torch.testing.assert_close(torch.vmap(inverse_of_product)(many), inverse_of_product(many))
