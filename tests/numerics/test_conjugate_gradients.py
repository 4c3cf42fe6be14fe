"""Conjugate gradients: the solution of the dense system, and what is left of it."""

from __future__ import annotations

import torch

from ppgp.numerics.conjugate_gradients import conjugate_gradients

RANDOM = torch.Generator().manual_seed(0)
B = torch.randn(30, 6, generator=RANDOM, dtype=torch.float64)
A, b = B.mT @ B, torch.randn(6, generator=RANDOM, dtype=torch.float64)


def test_as_many_steps_as_rows_solve_the_system() -> None:
    x, left = conjugate_gradients(A.mv, b, steps=6, left=0.0)
    torch.testing.assert_close(x, torch.linalg.solve(A, b))
    torch.testing.assert_close(left, torch.zeros_like(b), rtol=0, atol=1e-10)


def test_the_steps_end_at_a_share_of_the_right_hand_side() -> None:
    for share in (0.5, 0.01):
        x, left = conjugate_gradients(A.mv, b, steps=100, left=share)
        torch.testing.assert_close(left, b - A @ x)
        assert float(left.norm()) <= share * float(b.norm())


def test_a_start_at_the_solution_stays_there() -> None:
    solution = torch.linalg.solve(A, b)
    x, _ = conjugate_gradients(A.mv, b, solution, steps=5, left=1e-6)
    assert torch.equal(x, solution)


def test_where_the_curvature_is_negative_the_first_step_is_along_the_gradient() -> None:
    x, left = conjugate_gradients(lambda v: -0.5 * v, b, steps=5, left=0.01)
    assert torch.equal(x, b)
    torch.testing.assert_close(left, 1.5 * b)
