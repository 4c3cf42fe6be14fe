"""Checks of the inputs of a table: X, the known noise, and columns by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, SettingError, UnknownName, listed
from ..numerics.finite import all_finite
from .entries.arrays import as_tensor
from .entries.row_numbers import WrongRows
from .entries.tensors import cast, laid_out

KINDS = {"coordinates": "coordinate", "categorical": "categorical column"}
EXAMPLES = {"coordinates": '["east", "north"]', "categorical": '["colour"]'}


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
    _refuse_infinite(X, feature_names, missing)
    return X


def _refuse_infinite(X: Tensor, names: Sequence[str] | None, missing: bool) -> None:
    """Raise DataError if X holds infinity or, unless missing values are kept, NaN."""
    if all_finite(X):
        return
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


def check_noise(noise_sd: Any, n: int, like: Tensor) -> Tensor:
    """Return known standard deviations as a tensor [n].

    Args:
        noise_sd: One number for all rows, or one per row [n], in the units of y.
        n: The number of rows.
        like: A tensor whose dtype and device the result has.

    Raises:
        DataError: If they are not finite, negative, or neither one nor n.

    Examples:
        >>> import torch
        >>> from ppgp import data
        >>> data.check_noise(0.5, 3, like=torch.zeros(3))
        tensor([0.5000, 0.5000, 0.5000])
    """
    sd = cast(as_tensor(noise_sd, "noise_sd"), like, "noise_sd")
    if sd.ndim == 2 and sd.shape[1] == 1:
        sd = sd[:, 0]
    if sd.ndim > 1 or (sd.ndim == 1 and len(sd) != n):
        raise DataError(
            f"noise_sd with shape [{n}], one per row", f"shape {list(sd.shape)}", "align it with X"
        )
    sd = laid_out(sd.expand(n))
    bad = torch.nonzero(~(torch.isfinite(sd) & (sd >= 0))).flatten().tolist()
    if bad:
        do = "pass standard deviations, 0 where a row has no noise of its own"
        raise WrongRows(
            "finite noise_sd >= 0", lambda rows: f"others in {listed(rows, 'row')}", bad, do
        )
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
    given: tuple[Any, ...] = ()
    if isinstance(columns, Iterable) and not isinstance(columns, str):
        given = tuple(columns)
    for one in given:
        if isinstance(one, str) and one not in (names or ()):
            raise UnknownName(KINDS[what], one, names or map(str, range(d)))
    numbers = [one for one in given if not isinstance(one, str)]
    beyond = [one for one in numbers if type(one) is int and not 0 <= one < d]
    if beyond:
        wanted = f"columns 0 to {d - 1} as {what}"
        raise SettingError(wanted, listed(beyond, "column"), "count columns from 0")
    strange = [one for one in numbers if type(one) is not int]
    kept: tuple[Any, ...] = given
    if names and not strange:
        kept = tuple(one if isinstance(one, str) else names[one] for one in given)
    if strange or not kept or len(set(kept)) < len(kept):
        wanted = f"a list of different columns, by name or counted from 0, as {what}"
        raise SettingError(wanted, repr(columns)[:60], f"for example {EXAMPLES[what]}, or [0, 1]")
    return kept
