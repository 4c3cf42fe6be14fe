"""The numbers of the rows that a caller chooses."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError, counted, listed

__all__ = ["NoSuchRow", "chosen_rows"]

WANTED = "the numbers of rows, a slice or a mask"
FOR_EXAMPLE = "for example [0, 2], slice(0, 3) or y > 0"
LONGEST = 60  # characters of what is shown of a wrong index


class NoSuchRow(DataError, IndexError):
    """A row is asked for that is not there.

    It is an IndexError too, by which Python knows where a loop over the rows ends.
    """


def chosen_rows(index: Any, n: int) -> Tensor:
    """Return the numbers of the rows that a caller chooses, each from 0 to n - 1, as [k].

    Args:
        index: A number, several, a slice, ``...``, or a mask [n] of booleans, as a list, an array,
            a tensor or a column of pandas. Negative numbers count from the end.
        n: The number of rows.

    Raises:
        DataError: If it is none of these, or a mask of another length.
        NoSuchRow: If there is no row of that number.
    """
    if isinstance(index, slice | EllipsisType):
        try:
            return torch.from_numpy(np.arange(n)[index].copy())
        except (TypeError, ValueError):
            raise DataError(WANTED, repr(index)[:LONGEST], FOR_EXAMPLE) from None
    numbers = _numbers(index)
    if numbers.dtype == bool:
        if numbers.shape != (n,):
            wanted = f"a mask with one entry for each of {counted(n, 'row')}"
            raise DataError(wanted, f"shape {list(numbers.shape)}", f"pass a mask of shape [{n}]")
        return torch.from_numpy(np.flatnonzero(numbers))
    flat = numbers.astype(np.int64).reshape(-1)
    absent = flat[(flat < -n) | (flat >= n)]
    if len(absent):
        wanted = f"numbers of rows from 0 to {n - 1}" if n else "no number, as there are no rows"
        raise NoSuchRow(wanted, listed(absent.tolist(), "row"), "count the rows from 0")
    return torch.from_numpy(np.where(flat < 0, flat + n, flat))


def _numbers(index: Any) -> np.ndarray:
    """Return an index as an array of whole numbers or of booleans."""
    kind = type(index).__name__
    if isinstance(index, Tensor):
        if index.is_floating_point() or index.is_complex():
            raise DataError(WANTED, f"a tensor of {index.dtype}", FOR_EXAMPLE)
        index = index.cpu().numpy()
    try:
        numbers = np.asarray(index)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(WANTED, repr(index)[:LONGEST], FOR_EXAMPLE) from None
    if not numbers.size and numbers.dtype != bool:  # an empty list has no type of its own
        return np.zeros(0, np.int64)
    if numbers.dtype.kind not in "biu":
        got = f"{kind} of {numbers.dtype}" if numbers.ndim else repr(index)[:LONGEST]
        raise DataError(WANTED, got, FOR_EXAMPLE)
    return numbers
