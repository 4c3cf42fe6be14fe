"""Arrays and columns among the arguments of a program, as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..errors import DataError

__all__ = ["with_tensors"]

KINDS = "biuf"  # NumPy's booleans, whole numbers and floats


def with_tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a program, with arrays and columns of numbers as tensors.

    NumPy arrays, pandas columns and data frames of numbers become tensors: floats keep 32 or 64
    bits, whole numbers have 64, booleans stay booleans, and missing numbers are NaN. Any other
    argument is returned as it is.

    Args:
        arguments: ``{name: value}``.

    Raises:
        DataError: For an array or a column that does not hold numbers.
    """
    return {name: _tensor(name, value) for name, value in arguments.items()}


def _tensor(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "to_numpy") and hasattr(value, "index"):  # a column or a frame of pandas
        array = _of_pandas(value)
    else:
        return value
    if array.dtype.kind not in KINDS:
        got = f"an array of {array.dtype} as {name!r}"
        do = "convert it, for example by pandas.Categorical(...).codes for labels"
        raise DataError("numbers in the arrays among a program's arguments", got, do)
    if array.dtype.kind in "iu":
        array = array.astype(np.int64)
    elif array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return torch.from_numpy(np.array(array, order="C"))  # a copy that can be written to


def _of_pandas(value: Any) -> np.ndarray:
    """Return a column or a frame as an array; missing numbers are NaN."""
    array = value.to_numpy()
    if array.dtype != object:
        return array
    dtypes: Any = value.dtypes
    kinds = dtypes.tolist() if hasattr(dtypes, "tolist") else [dtypes]
    if all(getattr(kind, "kind", "O") in KINDS for kind in kinds):  # numbers with missing ones
        return value.to_numpy(dtype=np.float64, na_value=np.nan)
    return array
