"""The numbers that an SVI fit needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SVIOptions:
    """The options of ``SVI`` without its guide, by the same names; ``SVI`` documents them."""

    method: str
    steps: int
    learning_rate: float | Mapping[str, float]
    schedule: str
    optimizer: str
    gradient: str
    particles: int
    batch_size: int | None
    patience: int
    draws: int

    @property
    def rate(self) -> float:
        """The learning rate; the largest one if there are several."""
        if isinstance(self.learning_rate, Mapping):
            return max(self.learning_rate.values())
        return self.learning_rate
