"""Moments of a whitened sparse GP and their slopes, against the plain program."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ppgp.models.sparse.whitened import marginals
from ppgp.numerics import triangles

F64 = torch.float64
M, B = 300, 40  # more rows than one block of the products


def plain(
    Kmm: Tensor, Kmn: Tensor, diagonal: Tensor, loc: Tensor, W: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the moments as the equations state them, differentiated by torch."""
    A = torch.linalg.solve_triangular(torch.linalg.cholesky(Kmm), Kmn, upper=False)
    spread = (W.mT @ A).square().sum(-2) - A.square().sum(-2)
    return loc @ A, (diagonal + spread).clamp_min(0.0)


def problem(shape: tuple[int, ...], dtype: torch.dtype = F64) -> list[Tensor]:
    """Return Kmm, Kmn, diagonal, loc and W for an RBF kernel."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(M + B, 6, generator=g, dtype=F64)
    K = torch.exp(-0.5 * torch.cdist(X, X).square() / 4) + 1e-4 * torch.eye(M + B, dtype=F64)
    loc = torch.randn(*shape, M, generator=g, dtype=F64)
    noise = torch.randn(*shape, M, M, generator=g, dtype=F64)
    W = (0.1 * noise + torch.eye(M, dtype=F64)).tril()
    parts = [K[:M, :M], K[:M, M:], K.diagonal()[M:], loc, W]
    return [part.to(dtype).clone().requires_grad_(True) for part in parts]


def value_and_slopes(
    moments: Callable[..., tuple[Tensor, Tensor]], inputs: list[Tensor]
) -> list[Tensor]:
    """Return the moments, and the slopes of a sum of them with weights of both signs."""
    mean, variance = moments(*inputs)
    weights = torch.linspace(-1, 2, B).to(mean)
    slopes = torch.autograd.grad((weights * (mean.sin() + variance.log1p())).sum(), inputs)
    return [mean.detach(), variance.detach(), *slopes[:-1], slopes[-1].tril()]


def errors(found: list[Tensor], right: list[Tensor]) -> list[float]:
    """Return the largest error of each tensor, relative to its largest entry."""
    return [
        float((x.double() - y.double()).abs().max() / y.abs().max())
        for x, y in zip(found, right, strict=True)
    ]


@pytest.mark.parametrize("shape", [(), (3,)])
def test_value_and_slopes_are_those_of_the_plain_program(shape: tuple[int, ...]) -> None:
    inputs = problem(shape)
    found, right = value_and_slopes(marginals, inputs), value_and_slopes(plain, inputs)
    assert max(errors(found, right)) < 1e-12


def test_single_precision_is_as_accurate_as_the_plain_program() -> None:
    exact = value_and_slopes(plain, problem(()))
    inputs = problem((), torch.float32)
    ours = errors(value_and_slopes(marginals, inputs), exact)
    theirs = errors(value_and_slopes(plain, inputs), exact)
    assert all(a < 2 * b for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("shape", [(), (2,)])
def test_second_derivatives_across_blocks(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triangles, "BLOCK", 2)
    g = torch.Generator().manual_seed(1)
    m, b = 5, 4
    half = torch.randn(m, m, generator=g, dtype=F64) + 3 * torch.eye(m, dtype=F64)
    Kmn = torch.randn(m, b, generator=g, dtype=F64)
    loc, W = (torch.randn(*shape, *size, generator=g, dtype=F64) for size in ((m,), (m, m)))
    diagonal = torch.full((b,), 50.0, dtype=F64)

    def both(half: Tensor, Kmn: Tensor, loc: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        return marginals(half @ half.mT, Kmn, diagonal, loc, W.tril())

    inputs = [x.requires_grad_(True) for x in (half, Kmn, loc, W)]
    assert torch.autograd.gradcheck(both, inputs)
    assert torch.autograd.gradgradcheck(both, inputs)


def test_a_matrix_without_a_root_gives_nan() -> None:
    Kmm, *others = (x.detach() for x in problem(()))
    mean, variance = marginals(Kmm - 2 * torch.eye(M, dtype=F64), *others)
    assert bool(mean.isnan().all())
    assert bool(variance.isnan().all())
