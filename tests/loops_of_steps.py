"""Loops whose steps may hold sites: as ppgp.scan, and the same loops in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import ppgp
from ppgp.density.graph.loops import Loop
from ppgp.density.graph.tracing import OrNaN

Step = Callable[[Callable[[str], str], Any, Any], tuple[Any, Any]]
Scan = Callable[..., tuple[Any, Any]]


def scanned(
    step: Step, init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Return what ppgp.scan gives for a step whose first argument names its sites."""
    return ppgp.scan(lambda c, x: step(lambda name: name, c, x), init, xs, length, reverse)


def unrolled(
    step: Step, init: Any, xs: Any, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Return what the loop in Python gives, whose sites are ``x_0``, ``x_1``, ..."""
    rows = xs if xs is None or isinstance(xs, Tensor) else list(zip(*xs, strict=True))
    steps, ys = range(len(rows) if length is None else length), {}
    for t in reversed(steps) if reverse else steps:
        x = None if rows is None else rows[t]
        init, ys[t] = step(lambda name, t=t: f"{name}_{t}", init, x)
    first = ys[0]
    return init, None if first is None else torch.stack([ys[t] for t in steps])


def loops_in(graph: Any) -> list[Loop]:
    """Return the loops of a graph, of one point or of several."""
    inner = graph.function if isinstance(graph, OrNaN) else graph
    return [part.run for part in getattr(inner, "parts", []) if isinstance(part.run, Loop)]
