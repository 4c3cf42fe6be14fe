"""Whether a guide that should be richer than a Gaussian has ended below one."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ...errors import NumericalError
from ...target.target import Target
from .deterministic import fit_guide
from .gaussian_guide import GaussianGuide
from .initialisation import starting_frame
from .pathfinder import log_densities

STEPS = 50  # along the natural gradient; a dozen are enough where the posterior is near a Gaussian
DRAWS = 400  # behind the ELBO of the Gaussian
ERRORS = 3.0  # Monte Carlo standard errors by which it must be higher, and
NEGLIGIBLE = 0.01  # nats


def below_a_gaussian(
    target: Target, params: Mapping[str, Tensor], elbos: Tensor, seed: int
) -> list[str]:
    """A sentence where the full-rank Gaussian guide has a higher ELBO than the guide of ``elbos`` [k], one draw each; else [].

    The Gaussian is fitted with the params of the model held at ``params``.
    """
    held = Target(target.model, target.data)
    held.params.update({name: value for name, value in params.items() if name in held.params})
    generator = torch.Generator().manual_seed(seed)
    try:
        origin, root, interrupted = starting_frame(held, True, held.start(seed), seed)
        if interrupted:
            raise KeyboardInterrupt
        guide, _, _, interrupted, _ = fit_guide(
            GaussianGuide(origin, root, True), held, STEPS, generator, False
        )
    except NumericalError:
        return []  # where a Gaussian cannot be fitted, nothing is below it
    if interrupted:
        raise KeyboardInterrupt
    e = torch.randn(DRAWS, held.dim, generator=generator, dtype=torch.float64).to(origin)
    theirs = log_densities(held, guide.draw(e)) - guide.log_prob(e)
    gap = float(theirs.mean() - elbos.mean())
    error = math.hypot(*(float(x.std()) / math.sqrt(len(x)) for x in (theirs, elbos)))
    if not gap > ERRORS * error + NEGLIGIBLE:
        return []
    return [
        f"the ELBO of this guide, {float(elbos.mean()):.2f}, is {gap:.2f} nats (+-{error:.2f}) below that of a full-rank Gaussian, "
        "which it could be: raise steps or lower learning_rate, or use guide='multivariate_normal'"
    ]
