"""Gibbs sampling, for models that know their full conditionals."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...target.capabilities import FullConditionals, require
from ...target.target import Target
from .chain_record import State
from .chains import Chains, Transition


@dataclass(frozen=True)
class Gibbs(Chains):
    """Draw each block of sites in turn from its conditional distribution given the others.

    Geman & Geman (1984), Gelfand & Smith (1990).

    Args:
        draws: draws per chain that are kept.
        warmup: draws per chain that are thrown away.
        chains: the number of chains, which advance together.
    """

    def transition(self, target: Target) -> Transition:
        """Return one sweep over the blocks.

        Raises:
            NotApplicable: if the model has no conditionals in closed form under its priors.
        """
        sweep = require(target.model, FullConditionals).gibbs(target.data)

        def move(state: State, generator: torch.Generator, t: int) -> dict[str, Tensor]:
            state["z"] = target.unconstrain(sweep(target.constrain(state["z"]), generator))
            return {}

        return move
