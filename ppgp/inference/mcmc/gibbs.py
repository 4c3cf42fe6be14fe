"""Gibbs sampling, for models that know their full conditionals."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...capabilities import FullConditionals, require
from ...density.target import Target
from .chains import Chains, State, Transition


@dataclass(frozen=True)
class Gibbs(Chains):
    """Draw each block of sites in turn from its conditional distribution given the others.

    Geman & Geman (1984), Gelfand & Smith (1990). It serves LinearRegression with
    coefficients that are Normal or Flat and noise that is InverseGamma, Flat or a number, and
    GaussianMixture with Normal means and variances that are InverseGamma or numbers. The draws
    ``{site: [chain, draw, *event]}`` are on the scale of the model; ``Posterior.draws_in`` gives
    them in the units of the data.

    Args:
        draws: Draws per chain that are kept.
        warmup: Draws per chain that are thrown away.
        chains: The number of chains, which advance together.

    Raises:
        SettingError: For an option outside its range.
        NotApplicable: On use, if the model has no conditionals in closed form under its priors.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [1.1, 2.9, 5.1, 6.9])
        >>> model = models.LinearRegression(noise=priors.InverseGamma(3.0, 0.5))
        >>> how = inference.Gibbs(draws=250, warmup=20)
        >>> posterior = ppgp.fit(model, data, how, progress=False)
        >>> posterior.draws["noise"].shape  # [chain, draw]
        torch.Size([4, 250])
        >>> exact = ppgp.fit(model, data, inference.Exact(), progress=False)
        >>> gaps = [abs(posterior.draws[k].mean() - exact.draws[k].mean()) for k in exact.draws]
        >>> bool(max(gaps) < 0.05)
        True
    """

    def transition(self, target: Target) -> Transition:
        """Return one sweep over the blocks.

        Raises:
            NotApplicable: If the model has no conditionals in closed form under its priors.
        """
        sweep = require(target.model, FullConditionals).gibbs(target.data)

        def move(state: State, generator: torch.Generator, t: int) -> dict[str, Tensor]:
            state["z"] = target.unconstrain(sweep(target.constrain(state["z"]), generator))
            return {}

        return move
