"""Warnings that point at the line of the user's code that caused them."""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings

__all__ = ["warn"]

PACKAGE = __name__.partition(".")[0]
#: folders of Python's own modules and of installed packages
INSTALLED = tuple(
    {sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning at the innermost line that is neither of this nor of an installed package.

    Args:
        message: The text of the warning.
        category: The class of the warning.
    """
    frame, level = sys._getframe(1), 2  # 1 is this function
    while frame.f_back is not None:
        own = frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE
        if not own and not frame.f_code.co_filename.startswith((*INSTALLED, "<frozen")):
            break
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
