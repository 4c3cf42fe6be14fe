"""Where chains start in unconstrained space."""

from __future__ import annotations

import torch
from torch import Tensor

from ...density.target import Target
from ...posterior.posterior import Posterior
from ...runtime.seeding import standard_normal
from ..base import starting_point
from ..variational.pathfinder import near_the_mass

#: Chains start Uniform(-1, 1) around the origin of unconstrained space, or on a path from there.
SPREAD = 1.0
#: Dimensions above which chains do not start on a path of L-BFGS, and mass matrices are diagonal:
#: a low-rank adaptation costs an eigendecomposition per window, whatever the density costs.
LOW_RANK_UP_TO = 200
JITTER = 0.01  # sd of the starts around a point that the caller gives


def start_of_chain(target: Target, centre: Tensor | None, seed: int) -> Tensor:
    """Return the start z [p] of one chain.

    Args:
        target: The density.
        centre: The point that the caller gives, near which the chain starts, [p]; None: there is
            none.
        seed: The seed of this chain.
    """
    seed %= 2**63
    if centre is not None:
        generator = torch.Generator().manual_seed(seed)
        e = standard_normal(generator, target.dim)
        return centre + JITTER * e.to(centre)
    z = target.start(seed, SPREAD)
    if target.dim > LOW_RANK_UP_TO:
        return z
    return near_the_mass(target, z, seed)


def starts_of_chains(
    target: Target, init: Posterior | Tensor | None, seed: int, chains: int
) -> Tensor:
    """Return the starts of chains that advance together, [chain, p].

    Without ``init`` they lie apart, so that R-hat is informative. A Posterior gives some of its
    draws, a point serves all chains.
    """
    if init is None:
        return torch.stack([target.start(seed + chain, SPREAD) for chain in range(chains)])
    if isinstance(init, Posterior):
        z = target.unconstrain(init.theta)
        if len(z) >= chains:
            return z[torch.linspace(0, len(z) - 1, chains).long()].clone()
    return starting_point(target, init, seed).expand(chains, -1).clone()
