"""Conversion of the caller's arrays and tensors to dense float tensors of one layout in memory.

Beside it, where a caller moves a table: to a device that is there, and a dtype for computations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError, SettingError, an, listed
from ...numerics.finite import all_finite
from ...tables.entries import real_numbers, refuse_complex, refuse_masked
from ...tables.wrong_rows import WrongRows

PACKAGE = __name__.partition(".")[0]
KEPT = (torch.float32, torch.float64)  # other dtypes become float64
ALIGNMENT = 64  # bytes; that of the tensors that torch allocates
ACCELERATORS = ("cuda", "mps", "xpu")
DTYPES = "torch.float32 or torch.float64 as the dtype of a table"


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
    if isinstance(values, Tensor):
        tensor = of_tensor(values, what)
    else:
        array = values if type(values) is np.ndarray else array_of(values, what)
        if array.dtype.kind not in "fiub":
            array = real_numbers(array, what)
        single = array.dtype.kind == "f" and array.dtype.itemsize == 4
        tensor = of_array(array, torch.float32 if single else torch.float64)
    return tensor if dtype is None else tensor.to(dtype)


def check_inputs(
    X: Any,
    feature_names: Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
    missing: bool = False,
) -> Tensor:
    """Return X as a finite [n, d] tensor, in its own units.

    Args:
        X: An array, a tensor, a frame or a list.
        feature_names: The names of the columns, for messages.
        dtype: The dtype of the result; None keeps that of X.
        missing: Whether NaN, a missing value, is kept.

    Raises:
        DataError: If X is not two-dimensional, has no columns, or is not finite; the message names
            the shape, or the rows and columns.

    Examples:
        >>> from ppgp import data, errors
        >>> data.check_inputs([[1, 2], [3, 4]]).shape
        torch.Size([2, 2])
        >>> try:
        ...     data.check_inputs([[1.0, 2.0], [3.0, float("nan")]], ("age", "dose"))
        ... except errors.DataError as error:
        ...     print(error)
        expected finite numbers in X, got NaN or infinity in row 1, column dose: ...
    """
    X = as_tensor(X, "X", dtype)
    if X.ndim != 2:
        do = "flatten each row"
        if X.ndim == 1:
            do = "reshape one column as X[:, None], one row as X[None, :]"
        elif X.ndim == 0:
            do = "write one row of one column as [[x]]"
        raise DataError("X with shape [n, d]", f"shape {list(X.shape)}", do)
    if X.shape[1] == 0:
        raise DataError(
            "at least one column in X",
            f"shape {list(X.shape)}",
            "pass a column; a constant one fits an intercept alone",
        )
    if not all_finite(X):
        _refuse_infinite(X, feature_names, missing)
    return X


def _refuse_infinite(X: Tensor, names: Sequence[str] | None, missing: bool) -> None:
    """Raise DataError if X holds infinity or, unless missing values are kept, NaN."""
    bad = torch.isinf(X) if missing else ~torch.isfinite(X)
    if bool(bad.any()):
        rows, columns = (part.unique().tolist() for part in torch.nonzero(bad, as_tuple=True))
        if names:
            columns = [names[c] for c in columns]
        found = "infinity" if missing else "NaN or infinity"
        do = "correct them, or drop those rows"
        if bool(X.isnan().any()) and not missing:
            do = (
                "drop or impute them first, or pass Dataset(missing='keep') to models.Boosted, "
                "whose Trees take NaN"
            )
        where = listed(columns, "column")
        raise WrongRows(
            "finite numbers in X",
            lambda rows: f"{found} in {listed(rows, 'row')}, {where}",
            rows,
            do,
        )


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
    if type(values).__module__.partition(".")[0] == PACKAGE:
        raise _own_object(values, what)
    if isinstance(values, list | tuple):
        values = [_without_torch(v, what) for v in values]
        masked = [
            isinstance(v, np.ma.MaskedArray) and bool(np.ma.getmaskarray(v).any()) for v in values
        ]
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
    if hasattr(frame, "__arrow_c_stream__") and labels_of(frame) is not None:
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


def _own_object(values: Any, what: str) -> DataError:
    """Return the error for an object of this library in the place of an array."""
    name = type(values).__name__
    do = "pass an array"
    if name == "Dataset":
        do = f"pass its .{what if what in ('X', 'y') else 'y'}"
    elif what == "y":
        do = "pass the observed y"
    return DataError(f"an array of numbers as {what}", an(name), do)


def _without_torch(value: Any, what: str) -> Any:
    """Return a tensor as an array, and anything else as it is."""
    if isinstance(value, Tensor):
        return of_tensor(value, what).cpu().numpy()
    return value


def laid_out(values: Tensor) -> Tensor:
    """Return a dense tensor in C order, at an address that is a multiple of 64 bytes.

    Matrix products of one set of numbers differ in their last digits between layouts and between
    addresses, so that a fit would depend on how a table was made. A tensor that lies so already is
    returned as it is.

    Args:
        values: The tensor, of any shape and dtype.
    """
    strides = torch.empty(values.shape, device="meta").stride()
    if values.stride() == strides and values.data_ptr() % ALIGNMENT == 0:
        return values
    return values.clone(memory_format=torch.contiguous_format)


def of_array(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Return a copy of an array, laid out as by ``laid_out``.

    Args:
        array: Booleans or real numbers of any shape, layout and byte order.
        dtype: The dtype of the copy; what overflows becomes infinite.
    """
    copy = torch.empty(array.shape, dtype=dtype, device="cpu")
    if array.dtype == np.float64 and dtype is torch.float64:  # nothing can overflow
        np.copyto(copy.numpy(), array)
        return copy
    with np.errstate(over="ignore"):
        np.copyto(copy.numpy(), array, casting="unsafe")
    return copy


def of_tensor(values: Tensor, what: str) -> Tensor:
    """Return a dense tensor of real numbers in float32 or float64, without its gradient.

    It is laid out as by ``laid_out``.

    Args:
        values: The tensor.
        what: What it is called in messages.

    Raises:
        DataError: For complex numbers, and for tensors that are sparse, nested, masked or without
            values.
    """
    if isinstance(values, torch.masked.MaskedTensor):
        refuse_masked(~values.get_mask().cpu().numpy(), what)
        values = values.get_data()
    if values.layout is not torch.strided or values.is_nested:
        raise DataError(
            f"a dense tensor as {what}",
            "a sparse or nested one",
            "call .to_dense() or pad it first",
        )
    if values.is_meta:
        raise DataError(
            f"values in {what}", "a tensor without any, on the meta device", "pass the values"
        )
    if values.is_complex():
        refuse_complex(what)
    values = values.dequantize() if values.is_quantized else values.detach()
    if values.dtype not in KEPT:
        values = values.to(torch.float64)
    return laid_out(values)


def cast(values: Tensor, like: Tensor, what: str) -> Tensor:
    """Return ``values`` in the dtype and on the device of ``like``.

    Raises:
        DataError: If the dtype cannot represent a value; the message names its row.
    """
    moved = values.to(like)
    if torch.finfo(values.dtype).max > torch.finfo(moved.dtype).max:
        lost = torch.isinf(moved) & torch.isfinite(values).to(moved.device)
        if bool(lost.any()):
            rows = torch.nonzero(lost)[:, 0].unique().tolist()
            held = f"numbers that {str(moved.dtype).removeprefix('torch.')} holds in {what}"
            raise WrongRows(
                held,
                lambda rows: f"larger ones in {listed(rows, 'row')}",
                rows,
                "use float64 throughout",
            )
    return moved


def destination(
    where: tuple[Any, ...], device: Any = None, dtype: Any = None
) -> tuple[torch.device | None, torch.dtype | None]:
    """Return the device and the dtype that the arguments of ``to`` name; None for one that stays.

    Args:
        where: As of ``Tensor.to``: a device, a dtype, both, or a tensor that has them.
        device: The device by name.
        dtype: The dtype by name.

    Raises:
        SettingError: For a device that is not there or has no name of one, for a dtype that is
            neither float32 nor float64, and for anything else.
    """
    for one in where:
        if isinstance(one, Tensor):
            device, dtype = one.device, one.dtype
        elif isinstance(one, bool):  # whether the copy may go on while the program does
            continue
        elif isinstance(one, torch.dtype | type | np.dtype) or _names_dtype(one):
            dtype = one
        elif one is not None:
            device = one
    return _device(device), _dtype(dtype)


def _names_dtype(value: Any) -> bool:
    return isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype)


def _dtype(value: Any) -> torch.dtype | None:
    if value is None:
        return None
    found = getattr(torch, value, value) if isinstance(value, str) else value
    if isinstance(found, type | np.dtype):
        try:
            found = getattr(torch, np.dtype(found).name, found)
        except TypeError:  # a class that is no type of numbers
            found = value
    if found not in KEPT:
        do = "pass torch.float32, which is the narrowest"
        raise SettingError(DTYPES, repr(value)[:60], do)
    return found


def _device(value: Any) -> torch.device | None:
    """Return a device on which a number can be placed."""
    if value is None:
        return None
    try:
        device = torch.device(value)
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError):
        there = ["cpu"]
        for kind in ACCELERATORS:
            module = getattr(torch, kind)
            if module.is_available():
                there += [f"{kind}:{i}" for i in range(module.device_count())]
        wanted = f"a device that is there ({', '.join(there)})"
        got = repr(str(value))[:60]
        raise SettingError(wanted, got, f"pass {there[-1]!r}") from None
    return device
