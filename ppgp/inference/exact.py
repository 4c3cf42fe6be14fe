"""The posterior itself, where the model knows it in closed form."""

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
    """Independent draws from the exact posterior; predictions integrate in closed form, not over the draws.

    For a linear regression with Gaussian noise and Normal or Flat coefficients, and for a tiny mixture by enumeration of
    all assignments.

    Args:
        draws: how many to take.

    Stats: ``log_evidence``, log p(y) on the scale of the model (with a flat prior, the integral against density 1).
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
        """Take the draws; ``init`` and ``progress`` have no meaning here.

        Raises:
            NotApplicable: if the model has no closed form under its priors.
        """
        started = time.perf_counter()
        model = require(target.model, ClosedForm)
        draws, params, evidence = model.exact(
            target.data, self.draws, torch.Generator().manual_seed(seed)
        )
        stats = {"log_evidence": evidence}
        return from_draws(
            self, target, {name: v[None] for name, v in draws.items()}, started, stats, (), params
        )
