"""Conversion of the caller's arrays to float tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError, an
from .entries import real_numbers, refuse_masked
from .tensors import of_array, of_tensor


def as_tensor(values: Any, what: str, dtype: torch.dtype | None = None) -> Tensor:
    """Return an array, a list, a frame or a tensor as a float tensor without its gradient.

    float32 and float64 are kept, and every other type of number becomes float64. None and NA become
    NaN. Values need not be finite. They keep their shape, such as [n] or [n, d], and their units.

    Args:
        values: The values, of any shape.
        what: What they are called in messages.
        dtype: The dtype of the result; None keeps that of the values.

    Raises:
        DataError: If the values are not real numbers, or are masked or sparse; the message names
            the row.

    Examples:
        >>> from ppgp import data, errors
        >>> data.as_tensor([1, None, 2.5], "y")
        tensor([1.0000,    nan, 2.5000], dtype=torch.float64)
        >>> try:
        ...     data.as_tensor([1, "two"], "y")
        ... except errors.DataError as error:
        ...     print(error)
        expected numbers in y, got 'two' in row 1: ...
    """
    tensor = of_tensor(values, what) if isinstance(values, Tensor) else _of_array(values, what)
    if dtype is None:
        return tensor
    return tensor.to(dtype)


def one_per_row(
    values: Any, n: int, noun: str = "y", do: str = "pass y with shape [n]", what: str = "y"
) -> Tensor:
    """Return values [n] as ``as_tensor`` does: another shape would be spread over the rows.

    Args:
        values: One number per row.
        n: The number of rows.
        noun: What there is one of per row, for the message.
        do: What the user can do about another shape.
        what: What the values are called in the messages of ``as_tensor``.

    Raises:
        DataError: If the shape is not [n].
    """
    found = as_tensor(values, what)
    if found.shape != (n,):
        do = advice_on_targets(found, n, what, do)
        raise DataError(f"one {noun} per row ({n})", f"shape {list(found.shape)}", do)
    return found


def advice_on_targets(values: Tensor, n: int, what: str, do: str) -> str:
    """Return what to do about values that should be [n]: ``do``, or to take one of the targets.

    Args:
        values: The values.
        n: The number of rows.
        what: What they are called in messages.
        do: The advice where they are not those of several targets, [n, q].
    """
    if values.ndim != 2 or values.shape[0] != n or values.shape[1] < 2:
        return do
    return f"pass those of the one target that is predicted, such as {what}[:, 0]"


def array_of(values: Any, what: str) -> np.ndarray:
    """Return a list, a frame or an array as an array of NumPy, with any kind of entries.

    Args:
        values: The values.
        what: What they are called in messages.

    Raises:
        DataError: If rows differ in length, entries are masked, or the array is sparse.
    """
    _refuse_own(values, what)
    if isinstance(values, list | tuple):
        values = [_without_torch(v, what) for v in values]
        masked = [isinstance(v, np.ma.MaskedArray) and _any_masked(v) for v in values]
        refuse_masked(np.array(masked, dtype=bool), what)
    if isinstance(values, np.ma.MaskedArray):
        refuse_masked(np.ma.getmaskarray(values), what)
    values = as_pandas(values)
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise DataError(f"a dense array as {what}", "a sparse one", "call .toarray() first")
    try:
        if hasattr(values, "iloc"):
            return _of_pandas(values)
        return np.asarray(values)
    except ValueError:
        raise DataError(
            f"rows of one length in {what}", "rows of several lengths", "fill or cut them"
        ) from None
    except (TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"an array of numbers as {what}", reason, "pass a NumPy array or one tensor"
        ) from None


def as_pandas(frame: Any) -> Any:
    """Return a frame of Arrow, polars or another library as a pandas DataFrame.

    A frame is read through the Arrow stream or the dataframe protocol that it offers. Anything else
    is returned as it is, a DataFrame of pandas among it.

    Args:
        frame: The frame, or any other object.
    """
    if hasattr(frame, "iloc"):
        return frame
    if labels_of(frame) is not None and hasattr(frame, "__arrow_c_stream__"):
        import pyarrow

        return pyarrow.table(frame).to_pandas()
    if hasattr(frame, "__dataframe__"):
        from pyarrow import interchange

        return interchange.from_dataframe(frame).to_pandas()
    return frame


def labels_of(frame: Any) -> list[Any] | None:
    """Return the labels of a frame's columns, or None for an object that is not a frame."""
    labels = getattr(frame, "column_names", getattr(frame, "columns", None))
    return None if labels is None else list(labels)


def _of_pandas(values: Any) -> np.ndarray:
    """Return a column or a frame of pandas as an array.

    Missing floats of nullable and Arrow dtypes become NaN, and floats keep 32 or 64 bits.
    """
    dtypes = list(values.dtypes) if values.ndim == 2 else [values.dtype]
    plain = [getattr(dtype, "numpy_dtype", dtype) for dtype in dtypes]
    if plain != dtypes and all(isinstance(one, np.dtype) and one.kind in "fiu" for one in plain):
        common = np.result_type(*plain)
        if common.kind == "f":
            return values.to_numpy(dtype=common, na_value=np.nan)
    return np.asarray(values)


def _refuse_own(values: Any, what: str) -> None:
    """Raise DataError for an object of this library in the place of an array."""
    kind = type(values)
    if kind.__module__.partition(".")[0] != __name__.partition(".")[0]:
        return
    do = "pass an array"
    if kind.__name__ == "Dataset":
        do = f"pass its .{what if what in ('X', 'y') else 'y'}"
    elif what == "y":
        do = "pass the observed y"
    raise DataError(f"an array of numbers as {what}", an(kind.__name__), do)


def _without_torch(value: Any, what: str) -> Any:
    """Return a tensor as an array, and anything else as it is."""
    if isinstance(value, Tensor):
        return of_tensor(value, what).cpu().numpy()
    return value


def _any_masked(array: np.ma.MaskedArray) -> bool:
    """Return whether an entry is masked."""
    return bool(np.ma.getmaskarray(array).any())


def _of_array(values: Any, what: str) -> Tensor:
    """Return a list, a frame or an array as a tensor."""
    array = real_numbers(array_of(values, what), what)
    own_order = array.dtype.newbyteorder("=")
    return of_array(array, torch.float32 if own_order == np.float32 else torch.float64)
