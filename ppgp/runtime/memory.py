"""The refusal of what exceeds the available memory, before it is allocated."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..errors import NotEnoughMemory
from .available_memory import available

SMALL = 32 * 2**20  # bytes that are not checked: a check takes a fifth of a millisecond
SPARE = 0.8  # share of the available memory that an advice uses

Advice = str | Callable[[float], str]


def must_fit(size: float, what: str, do: Advice, device: torch.device | None = None) -> None:
    """Raise NotEnoughMemory for what cannot fit, before it is allocated.

    Sizes up to ``SMALL`` are not checked.

    Args:
        size: The bytes needed at the peak.
        what: What needs them, for example "the covariance of 40,000 rows".
        do: What would fit, or a function that states it for a number of usable bytes.
        device: Where it is allocated; None for the CPU.

    Raises:
        NotEnoughMemory: With both amounts and ``do``.
    """
    if size <= SMALL:
        return
    memory = available(device)
    if size > memory:
        if callable(do):
            do = do(SPARE * memory)
        raise NotEnoughMemory(
            f"at most {readable_size(memory)} for {what}, the memory that there is",
            readable_size(size),
            do,
        )


def readable_size(size: float) -> str:
    """Return bytes in readable units: 1.2 TB, 12.8 GB, 640 MB."""
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e6:.3g} MB"


def rounded_down(number: float) -> int:
    """Return the largest whole number with two leading digits that does not exceed ``number``."""
    whole = max(0, int(number))
    step = 10 ** max(0, len(str(whole)) - 2)
    return whole // step * step


def rows_per_call(bytes_per_row: float, fixed: float = 0.0) -> Callable[[float], str]:
    """Return the advice for a call whose memory grows with its rows.

    Args:
        bytes_per_row: The bytes that the call needs per row.
        fixed: The bytes that it needs whatever the number of rows.

    Returns:
        A function from usable bytes to a sentence.
    """

    def advice(memory: float) -> str:
        rows = rounded_down((memory - fixed) / bytes_per_row)
        if rows:
            return f"pass at most {rows:,} rows per call"
        return "use fewer draws, or a machine with more memory"

    return advice
