"""Checks of targets that are codes or counts."""

from __future__ import annotations

import torch

from ..data.dataset import Dataset
from ..errors import DataError, counted


def distinct(data: Dataset) -> tuple[list[float], str]:
    """The values of y, and the first few in words."""
    values = torch.unique(data.y).tolist()
    return values, ", ".join(f"{v:g}" for v in values[:6]) + (", ..." if len(values) > 6 else "")


def count_classes(data: Dataset) -> int:
    """As many as are named, or as the largest code says; at least 2."""
    return max(len(data.classes) if data.classes is not None else int(data.y.max()) + 1, 2)


def check_codes(data: Dataset, classes: int) -> None:
    """Refuse targets that are not the codes 0 .. classes - 1.

    Raises:
        DataError: naming the values found.
    """
    values, shown = distinct(data)
    if any(v not in range(classes) for v in values):
        raise DataError(
            f"labels 0 to {classes - 1} in y",
            f"{counted(len(values), 'value')}: {shown}",
            "recode y, or choose another likelihood",
        )


def check_counts_of_events(data: Dataset) -> None:
    """Refuse targets that are not whole numbers from 0 on.

    Raises:
        DataError: naming the first row that is none.
    """
    wrong = torch.nonzero((data.y < 0) | (data.y != data.y.round())).flatten().tolist()
    if wrong:
        raise DataError(
            "counts 0, 1, 2, ... in y",
            f"{float(data.y[wrong[0]]):g} in row {wrong[0]}",
            "choose another likelihood, or round y",
        )
