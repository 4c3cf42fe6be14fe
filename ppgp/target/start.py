"""Where a search begins: a point of finite density near the origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import NumericalError, counted

if TYPE_CHECKING:
    from .target import Target

STARTS = 100  # places tried before a density is said to be finite nowhere


def finite_start(target: Target, seed: int, spread: float, jacobian: bool, compile: bool) -> Tensor:
    """See ``Target.start``."""
    generator = torch.Generator().manual_seed(seed)
    origin = target.origin()
    for attempt in range(STARTS):
        reach = spread if attempt == 0 else max(spread, 0.05 * attempt)
        step = (2 * torch.rand(target.dim, generator=generator, dtype=torch.float64) - 1) * reach
        z = origin + step.to(origin)
        value, gradient = target.value_and_grad(z, jacobian=jacobian, compile=compile)
        if bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all()):
            return z
    if bool(torch.isfinite(value)):
        where = [
            name
            for name, s in target.slices.items()
            if not bool(torch.isfinite(gradient[s.start : s.stop]).all())
        ]
        raise NumericalError(
            "a finite gradient somewhere near the start",
            f"a finite density with a gradient of NaN or infinity in {', '.join(where)}",
            "look for a sqrt, log or norm of 0 in the program; torch.where around one does not help",
        )
    said = "" if target.invalid is None else f" (Pyro's validation: {target.invalid})"
    do = "check the likelihood against the data (values outside its support?), and the priors"
    missing = _missing(target.data)
    if missing:
        do = "drop those rows, or leave them out of the density by poutine.mask and another number in their place"
    raise NumericalError(
        "a finite log density somewhere near the start",
        f"NaN or infinity at all of {STARTS} places{missing}{said}",
        do,
    )


def _missing(data: Any) -> str:
    """Which arguments of a program hold NaN; "" where none does."""
    found = []
    for name, value in data.items() if isinstance(data, Mapping) else ():
        numbers = isinstance(value, Tensor) or (
            isinstance(value, np.ndarray) and value.dtype.kind == "f"
        )
        holes = torch.isnan(torch.as_tensor(value)) if numbers else torch.zeros(1, dtype=torch.bool)
        if bool(holes.any()):
            found.append(f"{int(holes.sum())} of {counted(holes.numel(), 'number')} in {name!r}")
    return f", with NaN for {', '.join(found)}" if found else ""
