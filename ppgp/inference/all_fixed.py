"""A model whose hyperparameters are all numbers: its posterior is one point, whatever the method."""

from __future__ import annotations

import time
from typing import Any

import torch

from ..posterior.posterior import Posterior
from ..target.target import Target
from .base import Inference, at_the_mode, from_draws


def only_draw(how: Inference, target: Target) -> Posterior:
    """The Posterior of a target with ``dim`` 0: one draw of no sites, and what the data say of its numbers.

    Stats: ``log_density`` (log p(y) on the scale of the model, at these numbers), under the name too that the model gives it
    (``log_evidence``; ``elbo`` where it is a bound), and what BIC and AIC are made of, with 0 free numbers.
    """
    started = time.perf_counter()
    z = target.origin()
    with torch.no_grad():
        value = float(target.log_density(z))
    stats: dict[str, Any] = {"log_density": value, **at_the_mode(target, z)}
    name = target.model.density_at_numbers
    if name is not None:
        stats[name] = value
    return from_draws(how, target, {}, started, stats)
