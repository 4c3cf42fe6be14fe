"""Exact inference, for models that know their posterior in closed form."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..posterior.posterior import Posterior
from ..target.capabilities import ClosedForm, require
from ..target.target import Target
from .base import Inference, from_draws
from .options import Count


@dataclass(frozen=True)
class Exact(Inference):
    """Independent draws from the exact posterior.

    Predictions integrate in closed form, not over the draws. The method serves a linear regression
    with Gaussian noise and Normal or Flat coefficients, and a tiny mixture by enumeration of all
    assignments.

    Stats: ``log_evidence``, log p(y) on the scale of the model (with a flat prior, the integral
    against density 1).

    Args:
        draws: the number of draws.
    """

    draws: Count = 1000

    def quick(self) -> Exact:
        return replace(self, draws=20)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        """Take the draws; ``init`` and ``progress`` have no effect.

        Raises:
            NotApplicable: if the model has no closed form under its priors.
        """
        started = time.perf_counter()
        model = require(target.model, ClosedForm)
        generator = torch.Generator().manual_seed(seed)
        draws, params, evidence = model.exact(target.data, self.draws, generator)
        chain = {name: value[None] for name, value in draws.items()}
        return from_draws(self, target, chain, started, {"log_evidence": evidence}, (), params)
