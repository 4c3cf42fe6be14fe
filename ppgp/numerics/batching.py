"""A function of many draws, evaluated on as many at once as fit into a budget of memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .memory import must_fit

MEMORY_BUDGET = 256 * 2**20  # bytes in the tensors that one call makes

Draws = Mapping[str, Tensor]


class Allocated(TorchDispatchMode):
    """Counts the bytes of every tensor made inside, freed or not: a bound on what a call needs."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "is_view", False):
            return out
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, Tensor):
                self.bytes += value.numel() * value.element_size()
        return out


def in_chunks(
    function: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    draws: Draws,
    budget: int | None = None,
) -> dict:
    """``function({site: [draw, ...]}) -> {name: [draw, ...]}``, called on runs of draws, its answers joined.

    How many go together follows from what one draw alone allocates. ``budget``: bytes; None: ``MEMORY_BUDGET``.
    """
    total = len(next(iter(draws.values()))) if draws else 1
    if total == 1:
        return function(dict(draws))
    first = {name: value[:1] for name, value in draws.items()}
    with Allocated() as one:
        answer = function(first)
    kept = sum(value.numel() * value.element_size() for value in answer.values())
    must_fit(
        2.0 * total * kept, f"the figures of {total:,} draws", "use fewer draws, or fewer rows"
    )
    size = max(1, (MEMORY_BUDGET if budget is None else budget) // max(one.bytes, 1))
    parts = [
        function({name: v[i : i + size] for name, v in draws.items()})
        for i in range(0, total, size)
    ]
    return (
        parts[0]
        if len(parts) == 1
        else {name: torch.cat([p[name] for p in parts]) for name in parts[0]}
    )
