"""The shape to which tensors are broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["broadcast_shapes"]


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """Return the shape to which tensors of these shapes are broadcast.

    ``torch.broadcast_shapes`` imports sympy, which takes longer than a small fit.

    Args:
        *shapes: The shapes, such as ``x.shape``.

    Raises:
        RuntimeError: If they cannot be broadcast, as torch raises it.
    """
    sizes: list[int] = []  # of the last axis first
    for shape in shapes:
        for place, size in enumerate(reversed(shape)):
            if place == len(sizes):
                sizes.append(size)
            elif sizes[place] == 1:
                sizes[place] = size
            elif size not in (1, sizes[place]):
                words = ", ".join(str(list(each)) for each in shapes)
                raise RuntimeError(f"shapes {words} cannot be broadcast to one shape")
    return torch.Size(reversed(sizes))
