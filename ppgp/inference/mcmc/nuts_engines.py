"""What an engine of NUTS takes and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class NUTSOptions(Protocol):
    """The options of one run, which are those of ``NUTS`` and documented there."""

    @property
    def draws(self) -> int: ...
    @property
    def warmup(self) -> int | None: ...
    @property
    def chains(self) -> int: ...
    @property
    def target_accept(self) -> float | None: ...
    @property
    def max_depth(self) -> int: ...
    @property
    def metric(self) -> str | None: ...


@dataclass(frozen=True)
class SampledChains:
    """The draws z [chain, draw, p] of a run, its stats ([chain, draw] or numbers) and warnings."""

    z: Tensor
    stats: dict[str, Any]
    notes: list[str]
    interrupted: bool
