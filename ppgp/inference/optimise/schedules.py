"""How the learning rate of a stochastic search changes over its steps."""

from __future__ import annotations

import math

SCHEDULES = ("constant", "cosine", "inverse")
FINAL = 0.01  # share of the learning rate that is left at the end of the cosine
HALF_LIFE = 0.05  # share of the steps after which the inverse schedule has halved the rate


def scheduled(schedule: str, step: int, steps: int) -> float:
    """Return the factor on the learning rate at a step, counted from 0."""
    if schedule == "cosine":
        return FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * step / steps))
    if schedule == "inverse":
        return 1 / (1 + step / (HALF_LIFE * steps))
    return 1.0


def factors(schedule: str, steps: int) -> list[float]:
    """Return the factors on the learning rate at all steps."""
    return [scheduled(schedule, step, steps) for step in range(steps)]
