"""The unit of y in which a boosted fit works."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ...errors import DataError

#: spreads of y whose fourth power is a float
SMALLEST, LARGEST = 1e-75, 1e75


def unit_of(likelihood: Any, y: Tensor) -> float:
    """Return the power of two nearest to the sd of y, or to its geometric mean if y is positive.

    It is 1 for counts, classes and ``FromDistribution``. Boosting in this unit gives the same bits
    whatever power of two y is multiplied by.

    Raises:
        DataError: If the square of the sd, or of the mean, is no float.
    """
    if "y" in likelihood.scales:
        largest = float(y.abs().max())
        size = largest
        if largest > 0:  # the square of y itself may be no float
            size = largest * float((y / largest).std())
    elif likelihood.positive:
        size = float(y.log().mean().exp())
    else:
        return 1.0
    if not math.isfinite(size) or size <= 0:
        return 1.0
    if not SMALLEST < size < LARGEST:
        raise DataError(
            f"targets whose spread lies between {SMALLEST:g} and {LARGEST:g}",
            f"{size:.3g}",
            "change the unit of y",
        )
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
