"""Derivatives by autograd, against formulas."""

from __future__ import annotations

import torch

from ppgp.numerics.derivatives import derivatives_of_sum

F64 = torch.float64


def test_it_equals_the_formula_and_keeps_no_graph() -> None:
    x, a = torch.tensor([0.5, -1.0, 2.0], dtype=F64), torch.tensor(3.0, dtype=F64)
    by_x, by_a = derivatives_of_sum(lambda x, a: a * x**3, (x, a))
    torch.testing.assert_close(by_x, 3 * a * x**2)
    torch.testing.assert_close(by_a, (x**3).sum())
    assert not by_x.requires_grad
    assert not x.requires_grad


def test_what_depends_on_an_input_beside_it_is_constant() -> None:
    x = torch.tensor([0.5, -1.0, 2.0], dtype=F64, requires_grad=True)
    square = x**2
    (first,) = derivatives_of_sum(lambda x: square * x, (x,), (square,))
    torch.testing.assert_close(first.detach(), (x**2).detach())
    # the derivative is x^2, whose own derivative counts how ``square`` moves
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 2 * x.detach())


def test_without_gradients_it_has_none() -> None:
    x = torch.tensor([0.5, -1.0], dtype=F64, requires_grad=True)
    with torch.no_grad():
        (first,) = derivatives_of_sum(torch.sin, (x,))
    torch.testing.assert_close(first, x.detach().cos())
    assert not first.requires_grad


def test_a_function_that_reads_no_input_has_slope_zero() -> None:
    x = torch.tensor([0.5, -1.0], dtype=F64)
    (slope,) = derivatives_of_sum(lambda x: torch.ones(2, dtype=F64), (x,))
    assert torch.equal(slope, torch.zeros(2, dtype=F64))


def test_it_holds_in_inference_mode_and_inside_transformations() -> None:
    x = torch.tensor([0.5, -1.0], dtype=F64)
    with torch.inference_mode():
        (slope,) = derivatives_of_sum(lambda x: x**3, (x.clone(),))
    torch.testing.assert_close(slope.clone(), 3 * x**2)

    def first(x: torch.Tensor) -> torch.Tensor:
        return derivatives_of_sum(lambda x: x**3, (x,))[0].sum()

    torch.testing.assert_close(torch.func.grad(first)(x), 6 * x)
    torch.testing.assert_close(torch.vmap(first)(x), 3 * x**2)
