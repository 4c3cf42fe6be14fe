"""Warnings that point at the line of the user's code that caused them."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn"]

#: packages whose frames lie between a warning and the code of the user
BETWEEN = ("ppgp", "torch", "pyro")


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning at the innermost line that is not of this library, of torch or of Pyro.

    Args:
        message: The text of the warning.
        category: The class of the warning.
    """
    level = 2  # 1 is this function
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN and frame.f_back:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
