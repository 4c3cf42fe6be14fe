"""Dtypes in which torch does not compute, among the arguments of a program."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from .entries.tensors import KEPT

__all__ = ["in_usable_dtypes"]

INDICES = (torch.int64, torch.int32)  # by which torch takes elements


def in_usable_dtypes(
    arguments: Mapping[str, Any], beside: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of a program with tensors in dtypes for which torch has all operations.

    Whole numbers that are no index (8 and 16 bits, and those without a sign) have 64 bits. Real
    numbers in half precision or less have the widest dtype of the other real numbers, at least
    float32. Booleans, float32, float64 and all that is no dense tensor are kept.

    Args:
        arguments: ``{name: value}``, after ``with_tensors``.
        beside: Further arguments that count for the widest dtype; None: none.
    """
    values = [v for v in [*arguments.values(), *(beside or {}).values()] if isinstance(v, Tensor)]
    dtypes = [v.dtype for v in values if v.dtype in KEPT]
    widest = reduce(torch.promote_types, dtypes, torch.float32)
    return {name: _usable(value, widest) for name, value in arguments.items()}


def _usable(value: Any, widest: torch.dtype) -> Any:
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_nested:
        return value
    if value.is_quantized:
        value = value.dequantize()
    if value.is_floating_point():
        return value if value.dtype in KEPT else value.to(widest)
    if value.is_complex() or value.dtype in (torch.bool, *INDICES):
        return value
    return value.to(torch.int64)
