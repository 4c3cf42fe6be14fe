"""The unit of y in which a boosted fit works."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor


def unit_of(likelihood: Any, y: Tensor) -> float:
    """Return the power of two nearest to the sd of y, or to its geometric mean if y is positive.

    It is 1 for counts, classes and ``FromDistribution``. Boosting in this unit gives the same bits
    whatever power of two y is multiplied by.
    """
    if "y" in likelihood.scales:
        size = float(y.std())
    elif likelihood.positive:
        size = float(y.log().mean().exp())
    else:
        return 1.0
    if not math.isfinite(size) or size <= 0:
        return 1.0
    return 2.0 ** round(math.log2(size))


def in_data_units(likelihood: Any, start: Tensor, unit: float) -> Tensor:
    """Return the constants with the first of them in the units of the data."""
    moved = start.clone()
    if "y" in likelihood.scales:
        moved[0] = start[0] * unit
    elif unit != 1.0:
        moved[0] = start[0] + math.log(unit)
    return moved


def in_unit(likelihood: Any, start: Tensor, unit: float) -> Tensor:
    """Return the constants in the unit of the fit; the inverse of ``in_data_units``."""
    moved = start.clone()
    if "y" in likelihood.scales:
        moved[0] = start[0] / unit
    elif unit != 1.0:
        moved[0] = start[0] - math.log(unit)
    return moved
