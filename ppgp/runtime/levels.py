"""The level of an interval or a set, checked without torch."""

from __future__ import annotations

from fractions import Fraction

from ..errors import SettingError

__all__ = ["exact_level"]


def exact_level(level: float) -> Fraction:
    """Return the level as the rational number that the user wrote: 0.9 is exactly 9/10.

    Raises:
        SettingError: If it does not lie strictly between 0 and 1.
    """
    number = isinstance(level, int | float)
    if isinstance(level, bool) or not number or not 0 < level < 1:
        do = "for example 0.9"
        if number and 1 < level < 100:
            do = f"write {level / 100:g} for {level:g} %"
        raise SettingError("a level in (0, 1)", repr(level), do)
    return Fraction(str(level))
