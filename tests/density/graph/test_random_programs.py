"""Graphs of random programs with scans give what a Python loop gives, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from loops_of_steps import loops_in
from random_programs import F32, F64, Program
from torch import Tensor
from torch.utils import _pytree as pytree

import ppgp
from ppgp.density.graph.tracing import traced

SEEDS = 12
#: errors of a graph that is refused: the program is run eagerly then, or its points one by one
REFUSALS = "depends on the arguments|vmap: |view size|broadcast shape|modified by an inplace"


def plain(step: Callable[..., Any], init: Any, xs: Any) -> tuple[Any, Any]:
    """Return what a Python loop gives."""
    carry, rows = init, []
    for t in range(len(xs[0])):
        carry, y = step(carry, tuple(x[t] for x in xs))
        rows.append(y)
    if rows[0] is None:
        return carry, None
    return carry, pytree.tree_map(lambda *parts: torch.stack(parts), *rows)


def points(seed: int) -> Tensor:
    """Return three points near 0 and three far from it, where other branches are taken."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([0.5, 0.5, 0.5, 2.0, 2.0, 2.0], dtype=F64)
    return scale[:, None] * torch.randn(6, 4, generator=generator, dtype=F64)


def slope(program: Program, z: Tensor, scan: Any) -> tuple[Tensor, Tensor]:
    z = z.detach().requires_grad_(True)
    value = program(z, scan)
    if not value.requires_grad:
        return value, torch.zeros_like(z)
    return value.detach(), torch.autograd.grad(value, z, materialize_grads=True)[0]


def graph_of(program: Program, z: Tensor, k: int | None) -> Any:
    """Return the graph; None if it is refused."""
    try:
        return traced(lambda z: slope(program, z, ppgp.scan), (z.clone(),), k)
    except RuntimeError as error:
        if not any(part in str(error) for part in REFUSALS.split("|")):
            raise
        return None


@pytest.mark.parametrize("rare", [False, True])
@pytest.mark.parametrize("dtype", [F64, F32], ids=["double", "single"])
def test_values_and_slopes(dtype: torch.dtype, rare: bool) -> None:
    # sums in another order, and the functions of libm; single precision is rounded at each step
    tolerance = 1e-11 if dtype == F64 else 1e-4
    loops = traced_programs = 0
    for seed in range(SEEDS):
        program, z = Program(seed, dtype, rare), points(seed)
        try:
            wanted = [
                torch.stack(x) for x in zip(*(slope(program, p, plain) for p in z), strict=True)
            ]
        except RuntimeError as error:
            if "modified by an inplace operation" in str(error):
                continue
            raise
        for k in (None, len(z)):
            graph = graph_of(program, z[0], k)
            if graph is None:
                continue
            traced_programs += 1
            loops += len(loops_in(graph))
            found = graph(z) if k else [torch.stack(x) for x in zip(*map(graph, z), strict=True)]
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(
                    one, other, rtol=tolerance, atol=tolerance, equal_nan=True,
                    msg=lambda said, seed=seed, k=k: f"program {seed}, k = {k}: {said}",
                )  # fmt: skip
    assert traced_programs > SEEDS
    assert loops > 2 * SEEDS


def test_second_derivatives() -> None:
    for seed in range(SEEDS):
        program, z = Program(seed, F64, False), points(seed)[0]
        found, wanted = (
            torch.autograd.functional.hessian(partial(program, scan=scan), z)
            for scan in (ppgp.scan, plain)
        )
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
