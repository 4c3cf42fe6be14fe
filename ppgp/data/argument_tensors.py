"""Arrays and columns among the arguments of a program, as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ..errors import DataError
from .entries.arrays import array_of, as_pandas
from .entries.entries import misspelt, real_numbers
from .entries.tensors import laid_out, of_array

__all__ = ["with_tensors"]

LARGEST_INTEGER = 2**63 - 1
KINDS = "biuf"  # NumPy's booleans, whole numbers and floats


def with_tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a program, with arrays and columns of numbers as tensors.

    NumPy arrays, and columns and frames of pandas, Arrow or polars, become tensors: floats keep 32
    or 64 bits, whole numbers have 64, booleans stay booleans, and missing numbers are NaN. Tensors
    keep their dtype and gradient. All of them are laid out as by ``laid_out``, those in lists,
    tuples and dicts too. Any other argument is returned as it is.

    Args:
        arguments: ``{name: value}``.

    Raises:
        DataError: For an array or a column that does not hold numbers.
    """
    return {name: _tensor(name, value) for name, value in arguments.items()}


def _tensor(name: str, value: Any) -> Any:
    """Return one argument, as ``with_tensors`` does."""
    if not _is_array(value):
        return _with_tensors_laid_out(value)
    array = array_of(as_pandas(value), name)
    if array.dtype.kind not in KINDS and hasattr(value, "iloc"):
        array = _with_nan(value, array)
    if array.dtype.kind not in KINDS:
        _refuse_misspelt(name, value, array)
        got = f"an array of {array.dtype} as {name!r}"
        do = "convert it, for example by pandas.Categorical(...).codes for labels"
        raise DataError("numbers in the arrays among a program's arguments", got, do)
    if array.dtype.kind == "u" and array.size and int(array.max()) > LARGEST_INTEGER:
        got = f"{int(array.max())} as {name!r}"
        do = "convert it, for example by .astype(float)"
        raise DataError(f"integers of at most {LARGEST_INTEGER}, those of torch.int64", got, do)
    return of_array(array, _dtype_of(array))


def _refuse_misspelt(name: str, value: Any, array: np.ndarray) -> None:
    """Raise DataError for numbers that are spelt as text, such as "1,486", in one of the columns.

    Args:
        name: The argument.
        value: What was passed.
        array: Its entries, [n] or [n, columns].
    """
    if array.dtype.kind not in "OUS" or array.ndim not in (1, 2):
        return
    names = list(getattr(as_pandas(value), "columns", []))
    for j, column in enumerate(array.reshape(len(array), -1).T):
        if misspelt(column.tolist()) is not None:
            of_column = f"column {names[j]} of " if names else ""
            real_numbers(column, f"{of_column}{name}")


def _is_array(value: Any) -> bool:
    """Return whether a value is an array, a column or a frame, of whichever library."""
    if isinstance(value, np.ndarray) or hasattr(value, "iloc"):
        return True
    protocols = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
    return any(hasattr(value, protocol) for protocol in protocols)


def _dtype_of(array: np.ndarray) -> torch.dtype:
    """Return the dtype of the tensor of an array of numbers."""
    if array.dtype.kind == "b":
        return torch.bool
    if array.dtype.kind in "iu":
        return torch.int64
    own_order = array.dtype.newbyteorder("=")
    if own_order == np.float16:
        return torch.float16
    return torch.float32 if own_order == np.float32 else torch.float64


def _with_nan(value: Any, array: np.ndarray) -> np.ndarray:
    """Return a column or a frame of pandas as an array; missing numbers are NaN.

    Args:
        value: The column or the frame.
        array: Its entries as they are.
    """
    dtypes: Any = value.dtypes
    kinds = dtypes.tolist() if hasattr(dtypes, "tolist") else [dtypes]
    if all(getattr(kind, "kind", "O") in KINDS for kind in kinds):  # numbers with missing ones
        return value.to_numpy(dtype=np.float64, na_value=np.nan)
    return array


def _with_tensors_laid_out(value: Any) -> Any:
    """Return a value whose tensors, also those in containers, are laid out as by ``laid_out``.

    A container whose tensors lie so already is returned itself.
    """
    if isinstance(value, Tensor):
        return laid_out(value) if _is_dense(value) else value
    if type(value) is dict:
        laid = {key: _with_tensors_laid_out(one) for key, one in value.items()}
        return laid if any(laid[key] is not one for key, one in value.items()) else value
    if type(value) in (list, tuple):
        each = [_with_tensors_laid_out(one) for one in value]
        changed = any(new is not one for new, one in zip(each, value, strict=True))
        return type(value)(each) if changed else value
    return value


def _is_dense(value: Tensor) -> bool:
    """Return whether a tensor is an ordinary one with values, and not sparse, nested or masked."""
    if type(value) not in (Tensor, Parameter) or value.layout is not torch.strided:
        return False
    return not (value.is_nested or value.is_meta or value.is_quantized)
