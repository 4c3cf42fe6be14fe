"""One run of a method on a Target, made again if the compiled graph of a program was wrong."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ..density.target import Target
from ..errors import NotApplicable
from ..posterior.posterior import Posterior
from ..runtime.seeding import seeded
from .all_fixed import only_draw
from .base import Inference, attempted
from .interrupts import raise_if_interrupted

__all__ = ["run"]


def run(how: Inference, target: Target, options: dict[str, Any]) -> Posterior:
    """Run the method; run it again if the compiled graph of a program proves wrong afterwards.

    Args:
        how: The method.
        target: The density.
        options: Keyword arguments of the method, ``seed`` among them.
    """
    with nullcontext() if target.random is None else seeded(options["seed"]):
        posterior = how(target, **options) if target.dim else only_draw(how, target)
    if target.data.is_table or not target.dim:
        return posterior
    notes: list[str] = []

    def was_wrong() -> bool:
        return target.graph_was_wrong(_unconstrained_draws(target, posterior))

    if not attempted(target, notes, "the comparison of graph and program", was_wrong, False):
        return replace(posterior, warnings=(*posterior.warnings, *notes))
    if "checkpoint" in options:  # it holds results of the wrong graph
        Path(options["checkpoint"]).unlink(missing_ok=True)
    raise_if_interrupted(posterior)
    return how(target, **options)


def _unconstrained_draws(target: Target, posterior: Posterior) -> Tensor | None:
    """Return the draws of a posterior as z [n, p]; None if they cannot be mapped back."""
    draws = {name: value.flatten(0, 1) for name, value in posterior.draws.items()}
    size = max((len(value) for value in draws.values()), default=1)
    params = {
        name: value[None].expand(size, *value.shape)
        for name, value in posterior.params.items()
        if name in target.slices
    }
    try:
        return target.unconstrain({**params, **draws})
    except NotApplicable:  # a support that depends on another site
        return None
