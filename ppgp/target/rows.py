"""How many rows a target looks at: as few as show its sites, and no more at once than there is memory for."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..data.dataset import Dataset


def enough_rows(model: Any, data: Any) -> tuple[Tensor, ...]:
    """Inputs and targets of rows that are enough to see which sites a model has; () for all of them."""
    if model.survey is None or not isinstance(data, Dataset) or data.n <= model.survey:
        return ()
    return data.X[: model.survey], data.y[: model.survey]


def check_memory(model: Any, data: Any, rows: int | None = None) -> None:
    """Raises NotEnoughMemory where the density of so many rows at once (None: all), with its gradient, does not fit."""
    if isinstance(data, Dataset):
        model.check_memory(data.n if rows is None else rows, data.d, data.X)
