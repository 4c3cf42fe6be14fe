"""Which rows something was found on before it became part of a recipe: numbers and trained modules know their own."""

from __future__ import annotations

from typing import Any

import torch

from .dataset import Dataset

MARK = "found_on_rows"  # the attribute of a module
ROUNDING = 16  # machine epsilons


class Origin:
    """The rows that something was found on, in the units of the data. Copies of the thing share it."""

    def __init__(self, *tables: Dataset) -> None:
        self.tables = tables

    def __copy__(self) -> Origin:
        return self

    def __deepcopy__(self, memo: Any) -> Origin:
        return self


class Found(float):
    """A number that knows the rows it was found on, and in all else that number. What is computed from it does not know them."""

    origin: Origin = Origin()

    @classmethod
    def on(cls, value: float, origin: Origin) -> Found:
        number = cls(value)
        number.origin = origin
        return number

    def __copy__(self) -> Found:
        return self

    def __deepcopy__(self, memo: Any) -> Found:
        return self


def origin_of(thing: object) -> Origin:
    """Of a number or a module; one without rows where none is known."""
    if isinstance(thing, Found):
        return thing.origin
    found = getattr(thing, MARK, None)
    return found if isinstance(found, Origin) else Origin()


def mark(module: Any, *tables: Dataset, before: Origin | None = None) -> None:
    """Let a module know the rows it was trained on, and those that it began from."""
    setattr(module, MARK, Origin(*(() if before is None else before.tables), *tables))


def same_table(a: Dataset, b: Dataset) -> bool:
    """Whether two tables have the same numbers in the same order, up to the rounding of a scale and back."""
    if a is b:
        return True
    if a.X.shape != b.X.shape or a.X.device != b.X.device:
        return False
    eps = ROUNDING * max(torch.finfo(table.X.dtype).eps for table in (a, b))
    pairs = ((a.y, b.y), (a.X, b.X))
    return all(bool(((one - two).abs() <= eps * one.abs().amax(0)).all()) for one, two in pairs)


__all__ = ["Found", "Origin", "mark", "origin_of", "same_table"]
