"""Where a caller moves a table: a device that is there, and a dtype for computations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError
from .entries.tensors import KEPT

__all__ = ["destination"]

ACCELERATORS = ("cuda", "mps", "xpu")
DTYPES = "torch.float32 or torch.float64 as the dtype of a table"


def destination(
    where: tuple[Any, ...], device: Any = None, dtype: Any = None
) -> tuple[torch.device | None, torch.dtype | None]:
    """Return the device and the dtype that the arguments of ``to`` name; None for one that stays.

    Args:
        where: As of ``Tensor.to``: a device, a dtype, both, or a tensor that has them.
        device: The device by name.
        dtype: The dtype by name.

    Raises:
        SettingError: For a device that is not there or has no name of one, for a dtype that is
            neither float32 nor float64, and for anything else.
    """
    for one in where:
        if isinstance(one, Tensor):
            device, dtype = one.device, one.dtype
        elif isinstance(one, bool):  # whether the copy may go on while the program does
            continue
        elif isinstance(one, torch.dtype | type | np.dtype) or _names_dtype(one):
            dtype = one
        elif one is not None:
            device = one
    return _device(device), _dtype(dtype)


def _names_dtype(value: Any) -> bool:
    return isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype)


def _dtype(value: Any) -> torch.dtype | None:
    if value is None:
        return None
    found = getattr(torch, value, value) if isinstance(value, str) else value
    if isinstance(found, type | np.dtype):
        try:
            found = getattr(torch, np.dtype(found).name, found)
        except TypeError:  # a class that is no type of numbers
            found = value
    if found not in KEPT:
        do = "pass torch.float32, which is the narrowest"
        raise SettingError(DTYPES, repr(value)[:60], do)
    return found


def check_default_device(device: torch.device) -> None:
    """Raise DataError for rows on another device than torch's default, unless that is the CPU."""
    default = torch.get_default_device()
    if default.type not in ("cpu", device.type):
        do = f"use data.to({str(default)!r})"
        raise DataError(f"rows on torch's default device, {default}", f"rows on {device}", do)


def _device(value: Any) -> torch.device | None:
    """Return a device on which a number can be placed."""
    if value is None:
        return None
    try:
        device = torch.device(value)
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError):
        there = ["cpu"]
        for kind in ACCELERATORS:
            module = getattr(torch, kind)
            if module.is_available():
                there += [f"{kind}:{i}" for i in range(module.device_count())]
        wanted = f"a device that is there ({', '.join(there)})"
        got = repr(str(value))[:60]
        raise SettingError(wanted, got, f"pass {there[-1]!r}") from None
    return device
