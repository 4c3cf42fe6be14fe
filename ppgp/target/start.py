"""The error of a density that is finite nowhere near its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import NumericalError, counted
from .layout import Slice


def finite_nowhere(
    value: Tensor,
    gradient: Tensor,
    slices: Mapping[str, Slice],
    data: Any,
    invalid: str | None,
    tried: int,
) -> NumericalError:
    """Return the error for a search without a point of finite density.

    Args:
        value: the log density at the last point.
        gradient: its gradient there, [p].
        slices: ``{site: Slice}``, to name the sites where something is wrong.
        data: of the program, to name arguments that hold NaN.
        invalid: what Pyro's validation reports.
        tried: the number of points.
    """
    if bool(torch.isfinite(value)):
        finite = torch.isfinite(gradient)
        where = [name for name, s in slices.items() if not bool(finite[s.start : s.stop].all())]
        return NumericalError(
            "a finite gradient somewhere near the start",
            f"a finite density with a gradient of NaN or infinity in {', '.join(where)}",
            "look for a sqrt, log or norm of 0 in the program; torch.where does not help there",
        )
    reported = "" if invalid is None else f" (Pyro's validation: {invalid})"
    do = "check the likelihood against the data (values outside its support?), and the priors"
    missing = _missing(data)
    if missing:
        do = (
            "drop those rows, or leave them out of the density by poutine.mask and another number "
            "in their place"
        )
    return NumericalError(
        "a finite log density somewhere near the start",
        f"NaN or infinity at all of {tried} places{missing}{reported}",
        do,
    )


def _missing(data: Any) -> str:
    """Return which arguments of a program hold NaN; "" if none does."""
    found = []
    for name, value in data.items() if isinstance(data, Mapping) else ():
        numbers = isinstance(value, Tensor) or (
            isinstance(value, np.ndarray) and value.dtype.kind == "f"
        )
        holes = torch.isnan(torch.as_tensor(value)) if numbers else torch.zeros(1, dtype=torch.bool)
        if bool(holes.any()):
            found.append(f"{int(holes.sum())} of {counted(holes.numel(), 'number')} in {name!r}")
    return f", with NaN for {', '.join(found)}" if found else ""
