"""Arrays of the caller as checked tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError, UnknownName


def as_tensor(values: Any, what: str, dtype: torch.dtype | None = None) -> Tensor:
    """A finite-or-not float tensor from an array, a list, a frame or a tensor; a float tensor keeps its dtype.

    Raises:
        DataError: if the values are not numbers.
    """
    if isinstance(values, Tensor):
        tensor = values if values.is_floating_point() else values.to(torch.float64)
        return tensor if dtype is None else tensor.to(dtype)
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"rows of one length in {what}", "rows of several lengths", "fill or cut them") from None
    if array.dtype.kind in "mM":
        raise DataError(f"numbers in {what}", "dates", "count days or seconds from a start date")
    if array.dtype.kind in "OUS":
        try:
            array = array.astype(float)
        except (TypeError, ValueError):
            odd = next((v for v in array.ravel().tolist() if not isinstance(v, int | float)), array.ravel()[:1])
            raise DataError(
                f"numbers in {what}", f"{odd!r}", "encode categories as numbers (one column a category), or drop the column"
            ) from None
    if array.dtype.kind == "c":
        raise DataError(f"real numbers in {what}", "complex ones", "pass real and imaginary parts as two columns")
    tensor = torch.from_numpy(np.array(array, dtype=np.float32 if array.dtype == np.float32 else np.float64))
    return tensor if dtype is None else tensor.to(dtype)


def check_inputs(X: Any, feature_names: Sequence[str] | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """X as a finite [n, d] tensor.

    Raises:
        DataError: naming the rows and columns that are NaN or infinite, or the shape that does not fit.
    """
    X = as_tensor(X, "X", dtype)
    if X.ndim != 2:
        shape = list(X.shape)
        do = "reshape one column as X[:, None], one row as X[None, :]" if X.ndim == 1 else "flatten each row"
        raise DataError("X with shape [n, d]", f"shape {shape}", do)
    if X.shape[1] == 0:
        raise DataError(
            "at least one column in X", f"shape {list(X.shape)}", "pass a column; a constant one fits an intercept alone"
        )
    bad = ~torch.isfinite(X)
    if bool(bad.any()):
        rows, columns = torch.nonzero(bad, as_tuple=True)
        names = [feature_names[c] if feature_names else int(c) for c in columns.unique().tolist()]
        raise DataError(
            "finite numbers in X",
            f"NaN or infinity in {_few(rows.unique().tolist(), 'row')}, {_few(names, 'column')}",
            "drop or impute them first",
        )
    return X


def check_noise(noise_sd: Any, n: int, like: Tensor) -> Tensor:
    """Known standard deviations [n], one for all or one a row.

    Raises:
        DataError: if they are not finite, negative, or of another number than the rows.
    """
    sd = as_tensor(noise_sd, "noise_sd").to(like)
    sd = sd[:, 0] if sd.ndim == 2 and sd.shape[1] == 1 else sd
    if sd.ndim > 1 or (sd.ndim == 1 and len(sd) != n):
        raise DataError(f"noise_sd with shape [{n}], one a row", f"shape {list(sd.shape)}", "align it with X")
    sd = sd.expand(n)
    bad = torch.nonzero(~(torch.isfinite(sd) & (sd >= 0))).flatten().tolist()
    if bad:
        do = "pass standard deviations, 0 where a row has no noise of its own"
        raise DataError("finite noise_sd >= 0", f"others in {_few(bad, 'row')}", do)
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


def _few(items: Sequence[Any], noun: str, limit: int = 5) -> str:
    shown = ", ".join(map(str, items[:limit])) + (f", ... ({len(items)} in all)" if len(items) > limit else "")
    return f"{noun}{'s' if len(items) > 1 else ''} {shown}"
