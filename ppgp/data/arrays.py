"""Conversion of the caller's arrays to checked tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError, UnknownName, listed
from .entries import real_numbers, refuse_complex, refuse_masked

KINDS = {"coordinates": "coordinate", "categorical": "categorical column"}
KEPT = (torch.float32, torch.float64)  # other dtypes become float64


def as_tensor(values: Any, what: str, dtype: torch.dtype | None = None) -> Tensor:
    """Return an array, a list, a frame or a tensor as a float tensor without its gradient.

    float32 and float64 are kept, and every other type of number becomes float64. None and NA become
    NaN. Values need not be finite.

    Args:
        values: The values.
        what: What they are called in messages.
        dtype: The dtype of the result; None keeps that of the values.

    Raises:
        DataError: If the values are not real numbers, or are masked or sparse; the message names
            the row.
    """
    tensor = of_tensor(values, what) if isinstance(values, Tensor) else _of_array(values, what)
    if dtype is None:
        return tensor
    return tensor.to(dtype)


def check_inputs(
    X: Any,
    feature_names: Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
    missing: bool = False,
) -> Tensor:
    """Return X as a finite [n, d] tensor.

    Args:
        X: An array, a tensor, a frame or a list.
        feature_names: The names of the columns, for messages.
        dtype: The dtype of the result; None keeps that of X.
        missing: Whether NaN, a missing value, is kept.

    Raises:
        DataError: If X is not two-dimensional, has no columns, or is not finite; the message names
            the shape, or the rows and columns.
    """
    X = as_tensor(X, "X", dtype)
    if X.ndim != 2:
        do = "flatten each row"
        if X.ndim == 1:
            do = "reshape one column as X[:, None], one row as X[None, :]"
        raise DataError("X with shape [n, d]", f"shape {list(X.shape)}", do)
    if X.shape[1] == 0:
        raise DataError(
            "at least one column in X",
            f"shape {list(X.shape)}",
            "pass a column; a constant one fits an intercept alone",
        )
    bad = torch.isinf(X) if missing else ~torch.isfinite(X)
    if bool(bad.any()):
        rows, columns = (part.unique().tolist() for part in torch.nonzero(bad, as_tuple=True))
        if feature_names:
            columns = [feature_names[c] for c in columns]
        found = "infinity" if missing else "NaN or infinity"
        raise DataError(
            "finite numbers in X",
            f"{found} in {listed(rows, 'row')}, {listed(columns, 'column')}",
            "drop or impute them first",
        )
    return X


def check_noise(noise_sd: Any, n: int, like: Tensor) -> Tensor:
    """Return known standard deviations as a tensor [n].

    Args:
        noise_sd: One number for all rows, or one per row.
        n: The number of rows.
        like: A tensor whose dtype and device the result has.

    Raises:
        DataError: If they are not finite, negative, or neither one nor n.
    """
    sd = cast(as_tensor(noise_sd, "noise_sd"), like, "noise_sd")
    if sd.ndim == 2 and sd.shape[1] == 1:
        sd = sd[:, 0]
    if sd.ndim > 1 or (sd.ndim == 1 and len(sd) != n):
        raise DataError(
            f"noise_sd with shape [{n}], one per row", f"shape {list(sd.shape)}", "align it with X"
        )
    sd = sd.expand(n)
    bad = torch.nonzero(~(torch.isfinite(sd) & (sd >= 0))).flatten().tolist()
    if bad:
        do = "pass standard deviations, 0 where a row has no noise of its own"
        raise DataError("finite noise_sd >= 0", f"others in {listed(bad, 'row')}", do)
    return sd


def check_columns(
    columns: Sequence[str | int] | None, names: Sequence[str] | None, d: int, what: str
) -> tuple[str | int, ...] | None:
    """Return columns by name where columns have names, else by number.

    Args:
        columns: The columns, by name or number.
        names: The names of all columns.
        d: The number of columns.
        what: The option that names them, one of ``KINDS``.

    Raises:
        UnknownName: If there is no such name; the message offers the nearest one.
        SettingError: If they are not a list, empty, repeated, or numbers without a column.
    """
    if columns is None:
        return None
    given = () if isinstance(columns, str) else tuple(columns)
    for one in given:
        if isinstance(one, str) and one not in (names or ()):
            raise UnknownName(KINDS[what], one, names or map(str, range(d)))
    numbers = [one for one in given if not isinstance(one, str)]
    strange = [one for one in numbers if type(one) is not int or not 0 <= one < d]
    kept = given
    if names and not strange:
        kept = tuple(one if isinstance(one, str) else names[one] for one in given)
    if strange or not kept or len(set(kept)) < len(kept):
        wanted = f"a list of different columns, by name or counted from 0, as {what}"
        raise SettingError(wanted, repr(columns), 'for example ["east", "north"], or [0, 1]')
    return kept


def of_tensor(values: Tensor, what: str) -> Tensor:
    """Return a dense tensor of real numbers in float32 or float64, without its gradient.

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
    if values.dtype in KEPT:
        return values
    return values.to(torch.float64)


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
            raise DataError(held, f"larger ones in {listed(rows, 'row')}", "use float64 throughout")
    return moved


def array_of(values: Any, what: str) -> np.ndarray:
    """Return a list, a frame or an array as an array of NumPy, with any kind of entries.

    Args:
        values: The values.
        what: What they are called in messages.

    Raises:
        DataError: If rows differ in length, entries are masked, or the array is sparse.
    """
    if isinstance(values, list | tuple):
        values = [_without_torch(v, what) for v in values]
        masked = [isinstance(v, np.ma.MaskedArray) and _any_masked(v) for v in values]
        refuse_masked(np.array(masked, dtype=bool), what)
    if isinstance(values, np.ma.MaskedArray):
        refuse_masked(np.ma.getmaskarray(values), what)
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise DataError(f"a dense array as {what}", "a sparse one", "call .toarray() first")
    try:
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
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    with np.errstate(over="ignore"):  # numbers that overflow become infinite, which checks reject
        return torch.from_numpy(np.array(array, dtype=dtype))
