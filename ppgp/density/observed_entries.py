"""Which numbers of a program's observed sites are data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import NotApplicable
from ..runtime.seeding import seeded
from .handlers import Run, is_data

NUDGE = 2.0**-10  # a relative change of the latent sites, which leaves cones and intervals alone


def entries_of_data(call: Callable[[], Any], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return which values of each observed site do not depend on the latent sites.

    A program may observe a value that it computes from latent sites: imputed numbers, or a prior
    written as an observation. They are no data.

    Args:
        call: Runs the program.
        values: {latent site or param: [*event]}.

    Returns:
        {observed site: bool, in the shape of its value without the event}.
    """
    first, second = {}, {}
    for name, value in values.items():
        moved = value.detach()
        first[name] = moved
        if moved.is_floating_point():
            second[name] = torch.where(moved == 0, NUDGE, moved * (1 - NUDGE))
        else:
            second[name] = moved
    at_first = _observed_values(call, first)
    try:
        at_second = _observed_values(call, second)
    except (RuntimeError, ValueError, ArithmeticError, IndexError):  # not defined there
        at_second = at_first
    entries = {}
    for name, (value, event) in at_first.items():
        other = at_second.get(name, (value, event))[0]
        if other.shape != value.shape:
            other = value
        same = (value == other) | (value != value) & (other != other)
        entries[name] = same.flatten(same.ndim - event).all(-1) if event else same
    return entries


def _observed_values(
    call: Callable[[], Any], values: dict[str, Tensor]
) -> dict[str, tuple[Tensor, int]]:
    """Return the value of each observed site, and the number of axes of its event."""
    with torch.no_grad(), seeded(0), Run(values) as run:
        call()
    return {
        name: (torch.as_tensor(s["value"]), len(s["fn"].event_shape))
        for name, s in run.samples()
        if is_data(s)
    }


def check_unweighted(name: str, site: Mapping[str, Any]) -> None:
    """Raise NotApplicable for an observed site that counts more or less than once.

    The importance weights of leave-one-out cross-validation would be those of another posterior.
    """
    scale = site["scale"]
    if (isinstance(scale, int | float) and scale == 1) or not is_data(site):
        return
    weights = torch.as_tensor(scale)
    if bool((weights != 1).any()):
        raise NotApplicable(
            "rows that count once each",
            f"a scale at {name!r} (pyro.poutine.scale, or a subsample of a plate)",
            "repeat the rows that count several times, or leave the scale out",
        )
