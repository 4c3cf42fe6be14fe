"""Arrays of the caller as checked tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError, UnknownName, listed
from .entries import real_numbers, refuse_complex, refuse_masked

KEPT = (torch.float32, torch.float64)


def as_tensor(values: Any, what: str, dtype: torch.dtype | None = None) -> Tensor:
    """A finite-or-not float tensor from an array, a list, a frame or a tensor, without its gradient.

    float32 and float64 are kept; every other type of number becomes float64. None and NA become NaN.

    Raises:
        DataError: if the values are not real numbers, are masked or sparse; the row is named.
    """
    tensor = of_tensor(values, what) if isinstance(values, Tensor) else _of_array(values, what)
    return tensor if dtype is None else tensor.to(dtype)


def check_inputs(
    X: Any, feature_names: Sequence[str] | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """X as a finite [n, d] tensor.

    Raises:
        DataError: naming the rows and columns that are NaN or infinite, or the shape that does not fit.
    """
    X = as_tensor(X, "X", dtype)
    if X.ndim != 2:
        shape = list(X.shape)
        do = (
            "reshape one column as X[:, None], one row as X[None, :]"
            if X.ndim == 1
            else "flatten each row"
        )
        raise DataError("X with shape [n, d]", f"shape {shape}", do)
    if X.shape[1] == 0:
        raise DataError(
            "at least one column in X",
            f"shape {list(X.shape)}",
            "pass a column; a constant one fits an intercept alone",
        )
    bad = ~torch.isfinite(X)
    if bool(bad.any()):
        rows, columns = torch.nonzero(bad, as_tuple=True)
        names = [feature_names[c] if feature_names else int(c) for c in columns.unique().tolist()]
        raise DataError(
            "finite numbers in X",
            f"NaN or infinity in {listed(rows.unique().tolist(), 'row')}, {listed(names, 'column')}",
            "drop or impute them first",
        )
    return X


def check_noise(noise_sd: Any, n: int, like: Tensor) -> Tensor:
    """Known standard deviations [n], one for all or one a row.

    Raises:
        DataError: if they are not finite, negative, or of another number than the rows.
    """
    sd = cast(as_tensor(noise_sd, "noise_sd"), like, "noise_sd")
    sd = sd[:, 0] if sd.ndim == 2 and sd.shape[1] == 1 else sd
    if sd.ndim > 1 or (sd.ndim == 1 and len(sd) != n):
        raise DataError(
            f"noise_sd with shape [{n}], one a row", f"shape {list(sd.shape)}", "align it with X"
        )
    sd = sd.expand(n)
    bad = torch.nonzero(~(torch.isfinite(sd) & (sd >= 0))).flatten().tolist()
    if bad:
        do = "pass standard deviations, 0 where a row has no noise of its own"
        raise DataError("finite noise_sd >= 0", f"others in {listed(bad, 'row')}", do)
    return sd


def check_coordinates(
    coordinates: Sequence[str | int] | None, names: Sequence[str] | None, d: int
) -> tuple[str | int, ...] | None:
    """The columns that are places in one space, by name where columns have names, else by number.

    Raises:
        UnknownName: if there is no such name (the nearest one is offered).
        SettingError: if they are no list, none, repeated, or numbers without a column.
    """
    if coordinates is None:
        return None
    given = () if isinstance(coordinates, str) else tuple(coordinates)
    for one in given:
        if isinstance(one, str) and one not in (names or ()):
            raise UnknownName("coordinate", one, names or map(str, range(d)))
    numbers = [one for one in given if not isinstance(one, str)]
    strange = [one for one in numbers if type(one) is not int or not 0 <= one < d]
    kept = tuple(names[one] if names and type(one) is int and one < d else one for one in given)
    if strange or not kept or len(set(kept)) < len(kept):
        wanted = "a list of different columns, by name or counted from 0, as coordinates"
        raise SettingError(wanted, repr(coordinates), 'for example ["east", "north"], or [0, 1]')
    return kept


def of_tensor(values: Tensor, what: str) -> Tensor:
    """A dense tensor of real numbers without its gradient, float32 or float64.

    Raises:
        DataError: for complex numbers and tensors that are sparse, nested, masked, quantised or without values.
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
    return values if values.dtype in KEPT else values.to(torch.float64)


def cast(values: Tensor, like: Tensor, what: str) -> Tensor:
    """``values`` in the dtype and on the device of ``like``.

    Raises:
        DataError: if that dtype does not hold a value; its row is named.
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
    """The array that a list, a frame or an array is, of any kind of entries.

    Raises:
        DataError: if rows differ in length, entries are masked, or it is sparse.
    """
    if isinstance(values, list | tuple):
        values = [of_tensor(v, what).cpu().numpy() if isinstance(v, Tensor) else v for v in values]
        masked = [
            isinstance(v, np.ma.MaskedArray) and bool(np.ma.getmaskarray(v).any()) for v in values
        ]
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


def _of_array(values: Any, what: str) -> Tensor:
    array = real_numbers(array_of(values, what), what)
    with np.errstate(over="ignore"):  # what is too large becomes infinity, and is refused as such
        return torch.from_numpy(
            np.array(array, dtype=np.float32 if array.dtype == np.float32 else np.float64)
        )
