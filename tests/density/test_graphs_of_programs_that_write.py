"""Graphs of programs that write in place, share memory or have tables of any strides."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.models import Program

F64 = torch.float64
X = torch.randn(8, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
#: near the start no write of these programs changes a number, so that no check there sees it
NEAR, FAR = (0.1, 0.2, 0.3), (8.0, -9.0, -3.0)


def site(size: int) -> Tensor:
    return pyro.sample("w", dist.Normal(torch.zeros(size, dtype=F64), 3.0).to_event(1))


def multiple_before_a_write() -> None:
    mu = X @ site(2)
    twice = 2.0 * mu
    mu.clamp_(-6.0, 6.0)
    pyro.factor("p", -0.01 * (X.sum(1) - twice).abs().sum() + mu.sum())


def square_before_a_write() -> None:
    w = site(2)
    mu = (X @ w).detach()
    square = mu**2
    mu.clamp_(-6.0, 6.0)
    pyro.factor("p", -0.01 * (X @ w + square).sum() + mu.sum())


def term_before_a_write() -> None:
    w = site(3)
    c = w.prod() * 0.1
    head = w[0] + c
    c.clamp_(max=0.5)
    pyro.factor("p", head + w[1:].sum() - c)


def pieces_before_a_write() -> None:
    w = site(3)
    a = w.detach() * 1.0 + 0.0 * w.detach().sin()
    u, v = a[:1] * 2.0, a[1:] * 3.0
    a.clamp_(max=2.0)
    pyro.factor("p", torch.cat([u, v]).cumsum(0).sum() * w.sum() + a.sum())


def view_across_a_scan() -> None:
    w = site(2)
    a = 2.0 * w
    head = a[:1]
    last, _ = ppgp.scan(lambda c, x: (c * 0.1 + x, None), w[1], torch.tensor([2.0, 3.0], dtype=F64))
    a.clamp_(max=3.0)
    pyro.factor("p", last + 3.0 * head.sum())


def view_of_a_transpose() -> None:
    w = site(3)
    A = torch.outer(w, w.exp()).mT
    s = A * 2.0 + torch.arange(9.0, dtype=F64).reshape(3, 3) * w
    pyro.factor("p", (s.mT.reshape(-1) * torch.arange(9.0, dtype=F64)).sum() * 1e-4)


def covariances() -> None:
    w = site(3)
    M = torch.outer(w, w) * 0.01 + torch.eye(3, dtype=F64)
    P = torch.eye(3, dtype=F64)
    for x in (2.0, 3.0, 1.5):
        S = M @ P @ M.mT + torch.eye(3, dtype=F64)
        P = S * 0.1
        pyro.factor(f"p{x}", torch.linalg.cholesky(S).diagonal().log().sum() + x * w[0])


def trace() -> None:
    w = site(3)
    M = torch.outer(w, w)
    pyro.factor("p", (M.trace() * M).sum() * 1e-3)


PROGRAMS = [
    multiple_before_a_write,
    square_before_a_write,
    term_before_a_write,
    pieces_before_a_write,
    view_across_a_scan,
    view_of_a_transpose,
    covariances,
    trace,
]
every = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)


def own_values(program: Callable[[], None], z: Tensor) -> tuple[Tensor, Tensor]:
    return Target(Program(program), {}, compile=False).value_and_grad(z)


@every
def test_a_graph_gives_the_values_of_its_program(program: Callable[[], None]) -> None:
    target = Target(Program(program), {})
    for point in (NEAR, FAR):
        z = torch.tensor(point[: target.dim], dtype=F64)
        torch.testing.assert_close(target.value_and_grad(z), own_values(program, z))
    assert not target.notes


@every
def test_several_points_have_gradients_of_their_own(program: Callable[[], None]) -> None:
    target = Target(Program(program), {})
    z = torch.tensor([NEAR, FAR, (1.2, 0.2, -0.5)], dtype=F64)[:, : target.dim]
    own = [own_values(program, point) for point in z]
    values, gradients = target.value_and_grad_batch(z)
    torch.testing.assert_close(values, torch.stack([value for value, _ in own]))
    torch.testing.assert_close(gradients, torch.stack([gradient for _, gradient in own]))


@pytest.mark.parametrize("kind", ["light", "heavy", "scan"])
@pytest.mark.parametrize("k", [None, 3])
def test_results_have_memory_of_their_own(kind: str, k: int | None) -> None:
    """The gradient is a constant table, into which a caller writes."""
    c = torch.tensor([1.0, 2.0], dtype=F64)
    many = torch.zeros(1_100_000 if kind == "heavy" else 1, dtype=F64)

    def program() -> None:
        z = pyro.param("z", torch.zeros(2, dtype=F64))
        rest: Any = 0.0
        if kind == "scan":
            rest, _ = ppgp.scan(lambda s, x: (s * x, None), torch.ones((), dtype=F64), 2 * c)
        pyro.factor("f", (z * c).sum() + rest + 0 * (z[0] * many).sum())

    target = Target(Program(program), {}, optimise_params=True)
    z = torch.tensor([0.1, 0.2], dtype=F64)
    found = []
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if k is None:
                value, gradient = target.value_and_grad(z)
            else:
                value, gradient = target.value_and_grad_batch(z.expand(k, 2))
        found.append((value.clone(), gradient.clone()))
        gradient.neg_()
        value.neg_()
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=0, atol=0)
