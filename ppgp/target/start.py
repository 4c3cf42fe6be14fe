"""Where a search starts: the origin of a density, or a point of finite density near it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import NumericalError, counted
from .conditioned import Conditioned
from .layout import placed
from .survey import Survey

STARTS = 100  # points tried before a density is said to be finite nowhere


def origin(program: Conditioned, survey: Survey) -> Tensor:
    """Return z = 0 [p], but the starting value of sites whose prior or model names one."""
    z = survey.like.new_zeros(survey.dim)
    for name, s in survey.slices.items():
        first = survey.first[name]
        if s.param or name in survey.flat:
            z[s.start : s.stop] = s.transform.inv(first).reshape(-1)
        elif s.circular:
            z[s.start : s.stop] = s.transform.inv(torch.zeros_like(first)).reshape(-1)
    return placed(survey.slices, z, program.model.start(program.data))


def finite_start(
    at: Callable[[Tensor], tuple[Tensor, Tensor]],
    origin: Tensor,
    survey: Survey,
    seed: int,
    spread: float,
    data: Any,
    invalid: str | None,
) -> Tensor:
    """Return a point of finite density near the origin; see ``Target.start``.

    Args:
        at: z [p] -> value and gradient.
        origin: where to look first, [p].
        survey: the sites, to name them where something is wrong.
        seed: of the random moves.
        spread: half the width of the first move.
        data: of the program, to name arguments that hold NaN.
        invalid: what Pyro's validation reports.

    Raises:
        NumericalError: if the density is finite at none of 100 points.
    """
    generator = torch.Generator().manual_seed(seed)
    value = gradient = origin.new_tensor(torch.nan)  # of the last attempt
    for attempt in range(STARTS):
        reach = spread if attempt == 0 else max(spread, 0.05 * attempt)
        step = (2 * torch.rand(survey.dim, generator=generator, dtype=torch.float64) - 1) * reach
        z = origin + step.to(origin)
        value, gradient = at(z)
        if bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all()):
            return z
    if bool(torch.isfinite(value)):
        finite = torch.isfinite(gradient)
        where = [
            name for name, s in survey.slices.items() if not bool(finite[s.start : s.stop].all())
        ]
        raise NumericalError(
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
    raise NumericalError(
        "a finite log density somewhere near the start",
        f"NaN or infinity at all of {STARTS} places{missing}{reported}",
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
