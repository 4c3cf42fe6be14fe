"""The rows from which numbers and trained modules in a recipe were computed.

A recipe is a model before it meets data. Numbers fitted to data and networks trained on data may
stand in it; they record the tables they come from.
"""

from __future__ import annotations

from typing import Any

from ..data.dataset import Dataset

MARK = "found_on_rows"  # the attribute of a module that holds its Origin


class Origin:
    """The tables that something was computed from, in the units of the data.

    Copies of the object share its Origin.

    Attributes:
        tables: The tables.
    """

    def __init__(self, *tables: Dataset) -> None:
        self.tables = tables

    def __copy__(self) -> Origin:
        return self

    def __deepcopy__(self, memo: Any) -> Origin:
        return self


class Found(float):
    """A float that records the rows it was computed from.

    The results of arithmetic with it are plain floats.

    Attributes:
        origin: The rows.
    """

    origin: Origin = Origin()

    @classmethod
    def on(cls, value: float, origin: Origin) -> Found:
        """Return a number that was computed from the rows of ``origin``."""
        number = cls(value)
        number.origin = origin
        return number

    def __copy__(self) -> Found:
        return self

    def __deepcopy__(self, memo: Any) -> Found:
        return self


def origin_of(thing: object) -> Origin:
    """Return the Origin of a number or a module, without tables where none is recorded."""
    if isinstance(thing, Found):
        return thing.origin
    origin = getattr(thing, MARK, None)
    if isinstance(origin, Origin):
        return origin
    return Origin()


def mark(module: Any, *tables: Dataset, before: Origin | None = None) -> None:
    """Record the rows that a module was trained on.

    Args:
        module: The module.
        *tables: The tables it was trained on.
        before: The Origin of the module that training started from.
    """
    earlier = () if before is None else before.tables
    setattr(module, MARK, Origin(*earlier, *tables))


__all__ = ["Found", "Origin", "mark", "origin_of"]
