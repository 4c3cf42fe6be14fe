"""Models whose hyperparameters are all fixed numbers, so that every method has the same result."""

from __future__ import annotations

import time
from typing import Any

import torch

from ..density.target import Target
from ..posterior.posterior import Posterior
from .base import Inference, at_the_mode, from_draws


def only_draw(how: Inference, target: Target) -> Posterior:
    """Return the Posterior of a target with ``dim`` 0: one draw of no sites.

    Its stats hold ``log_density`` (log p(y) at these numbers, on the scale of the model), the same
    value under the name that the model gives it (``log_evidence``, or ``elbo`` if it is a bound),
    and what BIC and AIC are made of, with 0 free parameters.
    """
    started = time.perf_counter()
    z = target.origin()
    with torch.no_grad():
        value = float(target.log_density(z))
    notes: list[str] = []
    stats: dict[str, Any] = {"log_density": value, **at_the_mode(target, z, notes)}
    name = target.model.density_at_numbers
    if name is not None:
        stats[name] = value
    return from_draws(how, target, {}, started, stats, notes)
