"""The arguments of a user's own program, as training data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import NotApplicable
from ..runtime.threads import numbers_in
from .argument_dtypes import in_usable_dtypes
from .argument_tensors import with_tensors
from .training_data import Rows, Tables, TrainingData, same_value


class Arguments(dict[str, Any], TrainingData):
    """The arguments of a program, by name: a dict with what a fit asks of its data."""

    @property
    def like(self) -> Tensor:
        return torch.zeros((), dtype=torch.get_default_dtype())

    @property
    def content(self) -> dict[str, Any]:
        return dict(self)

    def passed(
        self, tables: Tables = (), observed: bool = True
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), dict(self)

    def tables(self, rows: Rows | None) -> Tables:
        if rows is None:
            return ()
        got = "a program with its own arguments"
        raise NotApplicable("a Dataset to take mini-batches from", got, "use the full batch")

    def same_rows(self, other: Any) -> bool:
        if not isinstance(other, Mapping):
            return False
        return self.keys() == other.keys() and all(same_value(self[k], other[k]) for k in self)

    def work(self, model: Any) -> float:
        return model.work(numbers_in(self))


def as_training_data(data: Any) -> Any:
    """Return a mapping as Arguments with tensors for arrays, and a Dataset as it is."""
    if isinstance(data, Mapping) and not isinstance(data, Arguments):
        return Arguments(in_usable_dtypes(with_tensors(data)))
    return data
