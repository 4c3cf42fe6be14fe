"""Functions computed part by part have the values and derivatives of the whole."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppgp.models.neighbours.by_parts import by_parts, sum_of_parts

F64 = torch.float64
PIECES = (torch.tensor([[0, 2, 1], [3, -1, 0]]), torch.tensor([[4, 3], [1, 1]]))


def part(rows: Tensor, tables: Sequence[Tensor], shared: Sequence[Tensor]) -> tuple[Tensor, ...]:
    X, known = tables
    both = (X.sin() * known[..., None]).prod(0)
    return (both * shared[0]).exp(), both.sum(-1) * (rows[1] >= 0)


def only(rows: Tensor, tables: Sequence[Tensor], shared: Sequence[Tensor]) -> tuple[Tensor]:
    values, others = part(rows, tables, shared)
    return (values.sum(-1) + others,)


def tensors(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    X, known = (torch.randn(*s, generator=generator, dtype=F64) for s in ((5, 2), (5,)))
    scale = torch.randn(2, generator=generator, dtype=F64)
    return X.requires_grad_(), known, scale.requires_grad_()


def test_parts_have_the_values_and_two_derivatives_of_the_whole() -> None:
    X, known, scale = tensors(torch.Generator().manual_seed(0))

    def by_hand(X: Tensor, scale: Tensor) -> list[Tensor]:
        rows = [piece.clamp_min(0) for piece in PIECES]
        each = [part(p, (X[r], known[r]), (scale,)) for p, r in zip(PIECES, rows, strict=True)]
        return [torch.cat(outputs) for outputs in zip(*each, strict=True)]

    def in_parts(X: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        return by_parts(part, PIECES, (X, known), (scale,))

    def total(X: Tensor, scale: Tensor) -> Tensor:
        return sum_of_parts(only, PIECES, (X, known), (scale,))

    for a, b in zip(in_parts(X, scale), by_hand(X, scale), strict=True):
        torch.testing.assert_close(a, b)
    whole = by_hand(X, scale)
    torch.testing.assert_close(total(X, scale), whole[0].sum() + whole[1].sum())
    for function in (in_parts, total):
        assert torch.autograd.gradcheck(function, (X, scale))
        assert torch.autograd.gradgradcheck(function, (X, scale))


def test_tensors_without_gradients_have_none() -> None:
    X, known, scale = tensors(torch.Generator().manual_seed(1))
    value = sum_of_parts(only, PIECES, (X.detach(), known), (scale.detach(),))
    assert not value.requires_grad
    value = sum_of_parts(only, PIECES, (X.detach(), known), (scale,))
    (slope,) = torch.autograd.grad(2 * value, scale)
    assert slope.isfinite().all()
