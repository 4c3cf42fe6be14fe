"""Evaluation of a function over many posterior draws, in chunks that fit a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .dispatch_mode import DispatchMode
from .memory import must_fit

MEMORY_BUDGET = 256 * 2**20  # bytes that the tensors made by one call may take

Draws = Mapping[str, Tensor]


class Allocated(DispatchMode):
    """Count the bytes of every tensor created inside the block, whether freed or not.

    The count is an upper bound on the memory that the block needs.

    Attributes:
        bytes: The number of bytes so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "is_view", False):
            return out
        values = out if isinstance(out, tuple | list) else (out,)
        for value in values:
            if isinstance(value, Tensor):
                self.bytes += value.numel() * value.element_size()
        return out


def in_chunks(
    function: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    draws: Draws,
    budget: int | None = None,
) -> dict:
    """Apply ``function`` to chunks of posterior draws and concatenate its results.

    The chunk size follows from the memory that a single draw allocates.

    Args:
        function: Maps {site: [draw, ...]} to {name: [draw, ...]}.
        draws: {site: [draw, ...]}, the posterior draws.
        budget: The bytes that one call may allocate; None for ``MEMORY_BUDGET``.

    Returns:
        {name: [draw, ...]} for all draws.

    Raises:
        NotEnoughMemory: If the results for all draws do not fit in memory.
    """
    total = len(next(iter(draws.values()))) if draws else 1
    if total == 1:
        return function(dict(draws))
    first = {name: value[:1] for name, value in draws.items()}
    with Allocated() as one:
        answer = function(first)
    kept = sum(value.numel() * value.element_size() for value in answer.values())
    must_fit(
        2.0 * total * kept, f"the results of {total:,} draws", "use fewer draws, or fewer rows"
    )
    if budget is None:
        budget = MEMORY_BUDGET
    size = max(1, budget // max(one.bytes, 1))
    parts = []
    for i in range(0, total, size):
        parts.append(function({name: v[i : i + size] for name, v in draws.items()}))
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
