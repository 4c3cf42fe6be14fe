"""Numbers in guarantees, rounded to the side on which the sentence still holds."""

from __future__ import annotations

import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

ROUNDINGS = 8  # a number this near to a shorter one counts as equal to it


def rounded_up(value: float, digits: int) -> str:
    """Return the smallest number of so many significant digits that is not below value."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int) -> str:
    """Return the largest number of so many significant digits that is not above value."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, direction: str) -> str:
    nearest = f"{value:.{digits}g}"
    exact = Decimal(value)
    if not exact.is_finite() or not exact:
        return nearest
    if abs(float(nearest) - value) <= ROUNDINGS * sys.float_info.epsilon * abs(value):
        return nearest
    last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{float(exact.quantize(last, rounding=direction)):.{digits}g}"
