"""A comparison of a flexible guide with a Gaussian one."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ...density.target import Target
from ...errors import NumericalError
from ...runtime.seeding import standard_normal
from .deterministic import fit_guide
from .gaussian_guide import GaussianGuide
from .guide_start import initial_gaussian
from .pathfinder import log_densities

STEPS = 50  # along the natural gradient; a dozen suffice if the posterior is near a Gaussian
DRAWS = 400  # behind the ELBO of the Gaussian guide
#: The Gaussian guide must be better by so many Monte Carlo standard errors, plus so many nats.
ERRORS = 3.0
NEGLIGIBLE = 0.01


def below_a_gaussian(
    target: Target, params: Mapping[str, Tensor], elbos: Tensor, seed: int
) -> list[str]:
    """Return a warning if a full-rank Gaussian guide has a higher ELBO than another guide, else [].

    Args:
        target: The density.
        params: The params of the model, which stay fixed while the Gaussian guide is fitted.
        elbos: Estimates [k] of the ELBO of the other guide, from one draw each.
        seed: The seed of the fit.

    Raises:
        KeyboardInterrupt: If Ctrl-C ended the fit.
    """
    if target.random is not None:
        return []  # fixed draws would fit the Gaussian guide to one choice of the rows
    held = Target(target.model, target.data)
    held.params.update({name: value for name, value in params.items() if name in held.params})
    generator = torch.Generator().manual_seed(seed)
    try:
        origin, root, interrupted = initial_gaussian(held, True, held.start(seed), seed)
        if interrupted:
            raise KeyboardInterrupt
        fit = fit_guide(GaussianGuide(origin, root, True), held, STEPS, generator, False)
    except NumericalError:
        return []  # no Gaussian guide can be fitted
    if fit.interrupted:
        raise KeyboardInterrupt
    guide = fit.guide
    e = standard_normal(generator, DRAWS, held.dim).to(origin)
    gaussian = log_densities(held, guide.draw(e)) - guide.log_prob(e)
    gap = float(gaussian.mean() - elbos.mean())
    error = math.hypot(*(float(x.std()) / math.sqrt(len(x)) for x in (gaussian, elbos)))
    if not gap > ERRORS * error + NEGLIGIBLE:
        return []
    return [
        f"the ELBO of this guide, {float(elbos.mean()):.2f}, is {gap:.2f} nats (+-{error:.2f}) "
        "below that of a full-rank Gaussian, which it could be: raise steps or lower "
        "learning_rate, or use guide='multivariate_normal'"
    ]
