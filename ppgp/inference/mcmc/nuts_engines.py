"""What an engine of NUTS takes and what it returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class NUTSOptions:
    """The options of one run.

    Attributes:
        draws: draws per chain that are kept.
        warmup: draws per chain that are thrown away.
        chains: the number of chains.
        target_accept: the mean acceptance that the step size is tuned to.
        max_depth: at most 2^max_depth gradients per draw.
        metric: the form of the mass matrix; None: the default of the engine.
    """

    draws: int
    warmup: int
    chains: int
    target_accept: float
    max_depth: int
    metric: str | None


@dataclass(frozen=True)
class SampledChains:
    """The draws z [chain, draw, p] of a run, its stats [chain, draw] and its warnings."""

    z: Tensor
    stats: dict[str, Tensor]
    notes: list[str]
    interrupted: bool
