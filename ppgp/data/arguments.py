"""The arguments of a user's own program: as training data, as tensors, and in usable dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ..errors import DataError, NotApplicable
from ..runtime.threads import numbers_in
from ..tables.entries import misspelt, real_numbers
from .entries.arrays import KEPT, array_of, as_pandas, laid_out, of_array
from .training_data import Batch, Rows, Tables, TrainingData, same_value

__all__ = ["Arguments", "as_training_data", "in_usable_dtypes", "is_frame", "with_tensors"]

LARGEST_INTEGER = 2**63 - 1
KINDS = "biuf"  # NumPy's booleans, whole numbers and floats
INDICES = (torch.int64, torch.int32)  # by which torch takes elements


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
        if isinstance(rows, Batch):  # the numbers of the rows in its plates
            return rows.tables
        got = "a program with its own arguments"
        raise NotApplicable("a Dataset to take mini-batches from", got, "use the full batch")

    def same_rows(self, other: Any) -> bool:
        if not isinstance(other, Mapping):
            return False
        return self.keys() == other.keys() and all(same_value(self[k], other[k]) for k in self)

    def work(self, model: Any) -> float:
        return model.work(numbers_in(self))


def as_training_data(data: Any, frames: bool = False) -> Any:
    """Return a mapping as Arguments with tensors for arrays, and a Dataset as it is.

    Args:
        data: What a fit is given.
        frames: Whether columns and frames stay as they are, for a program that reads columns by
            name.
    """
    if isinstance(data, Mapping) and not isinstance(data, Arguments):
        kept = {name: value for name, value in data.items() if frames and is_frame(value)}
        others = {name: value for name, value in data.items() if name not in kept}
        usable = in_usable_dtypes(with_tensors(others)) | kept
        return Arguments({name: usable[name] for name in data})
    return data


def is_frame(value: Any) -> bool:
    """Return whether a value is a column or a frame of pandas, Arrow or polars."""
    return _is_array(value) and not isinstance(value, np.ndarray)


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


def in_usable_dtypes(
    arguments: Mapping[str, Any], beside: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of a program with tensors in dtypes for which torch has all operations.

    Whole numbers that are no index (8 and 16 bits, and those without a sign) have 64 bits. Real
    numbers in half precision or less have the widest dtype of the other real numbers, at least
    float32. Booleans, float32, float64 and all that is no dense tensor are kept.

    Args:
        arguments: ``{name: value}``, after ``with_tensors``.
        beside: Further arguments that count for the widest dtype; None: none.
    """
    values = [v for v in [*arguments.values(), *(beside or {}).values()] if isinstance(v, Tensor)]
    dtypes = [v.dtype for v in values if v.dtype in KEPT]
    widest = reduce(torch.promote_types, dtypes, torch.float32)
    return {name: _usable(value, widest) for name, value in arguments.items()}


def _usable(value: Any, widest: torch.dtype) -> Any:
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_nested:
        return value
    if value.is_quantized:
        value = value.dequantize()
    if value.is_floating_point():
        return value if value.dtype in KEPT else value.to(widest)
    if value.is_complex() or value.dtype in (torch.bool, *INDICES):
        return value
    return value.to(torch.int64)
