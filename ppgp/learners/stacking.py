"""Tensors of several fits, stacked along a leading axis of draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import SettingError

#: what shorter tensors are padded with; others with 0
FILL = {"feature": -1, "category": -1, "columns": -1}


def stack(members: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors of several fits of one learner, stacked along a new first axis.

    Members with fewer stages are padded with stages whose outputs are 0.

    Args:
        members: What ``Growing.tensors`` returned for each member.

    Raises:
        SettingError: If the members are of different learners, or there are none.
    """
    if not members or any(one.keys() != members[0].keys() for one in members):
        raise SettingError(
            "members fitted by one learner",
            f"{len(members)} members of different learners" if members else "no members",
            "stack fits of the same learner to the same columns",
        )
    return {name: padded_tensors(name, [one[name] for one in members]) for name in members[0]}


def padded_tensors(name: str, values: Sequence[Tensor]) -> Tensor:
    """Return tensors of different sizes as one tensor (see ``padded``)."""
    array = padded(name, [value.detach().cpu().numpy() for value in values])
    return torch.from_numpy(array).to(values[0].device)


def padded(name: str, values: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays of different sizes as one array, stacked along a new first axis.

    Args:
        name: The name of the tensor, which decides what fills the gaps.
        values: The arrays.
    """
    shape = [max(sizes) for sizes in zip(*(value.shape for value in values), strict=True)]
    stacked = np.full((len(values), *shape), FILL.get(name, 0), dtype=values[0].dtype)
    for row, value in enumerate(values):
        stacked[(row, *(slice(size) for size in value.shape))] = value
    return stacked


def joined(name: str, values: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays joined along their first axis, padded along the others (see ``padded``)."""
    shape = [max(sizes) for sizes in zip(*(value.shape[1:] for value in values), strict=True)]
    rows = sum(len(value) for value in values)
    whole = np.full((rows, *shape), FILL.get(name, 0), dtype=values[0].dtype)
    start = 0
    for value in values:
        inner = (slice(size) for size in value.shape[1:])
        whole[(slice(start, start + len(value)), *inner)] = value
        start += len(value)
    return whole


def by_member(
    function: Callable[[dict[str, Tensor]], Tensor], tensors: Mapping[str, Tensor], axes: int
) -> Tensor:
    """Apply a function to the tensors of each member, and stack the results along leading axes.

    Args:
        function: Maps the tensors of one member to a tensor.
        tensors: The tensors of all members, with ``axes`` leading axes.
        axes: The number of leading axes.
    """
    if not axes:
        return function(dict(tensors))
    return torch.stack([by_member(function, one, axes - 1) for one in _members(tensors)])


def _members(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors of each member along the first axis."""
    for row in range(len(next(iter(tensors.values())))):
        yield {name: value[row] for name, value in tensors.items()}
