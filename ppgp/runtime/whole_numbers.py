"""Checks of whole numbers that a caller gives."""

from __future__ import annotations

from operator import index
from typing import Any

from ..errors import SettingError

LEAST_SEED, MOST_SEEDS = -(2**63), 2**64  # what torch takes

__all__ = ["check_seed", "check_whole_number", "check_workers"]


def check_whole_number(name: str, value: Any, least: int, do: str) -> None:
    """Raise SettingError unless a value is a whole number of at least ``least``.

    Args:
        name: What the number is called, for the message.
        value: The value. True and False are no numbers.
        least: The smallest number that is allowed.
        do: What the user can do about it.
    """
    try:
        enough = not isinstance(value, bool) and index(value) >= least
    except TypeError:
        enough = False
    if not enough:
        wanted = f"a whole number of at least {least} as {name}"
        raise SettingError(wanted, repr(value)[:60], do)


def check_seed(seed: Any) -> int:
    """Return a seed as an int, which torch takes, as no whole number of NumPy's.

    Raises:
        SettingError: Unless it is a whole number of either sign that fits in 64 bits. True and
            False are no numbers.
    """
    wanted, fits = "a whole number as seed", False
    try:
        fits = not isinstance(seed, bool) and LEAST_SEED <= index(seed) < MOST_SEEDS
        if not fits and not isinstance(seed, bool):
            wanted += " that fits in 64 bits"
    except TypeError:
        pass
    if not fits:
        raise SettingError(wanted, repr(seed)[:60], "for example seed=0")
    return index(seed)


def check_workers(workers: Any) -> None:
    """Raise SettingError unless ``workers`` is None or a whole number of at least 1."""
    if workers is not None:
        check_whole_number("workers", workers, 1, "pass workers=2, or leave it out")
