"""The drift of kriging: the functions of x whose combination is the mean, and the coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations_with_replacement
from typing import TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import DataError, SettingError, counted
from ...kernels.base import OutputColumn, output_of_rows
from ...priors import plain

#: None, "none", "constant", a degree, columns of X, or a function of X [n, d] that returns [n] or
#: [n, q]; None is a constant, one for each output where the kernel has a Coregionalisation
Drift: TypeAlias = str | int | tuple[int, ...] | Callable[[Tensor], Tensor] | None
#: {coordinate: what its codes of outputs are}, see ``Kernel.output_columns``
OutputColumns: TypeAlias = Mapping[int, OutputColumn]

ROUNDING = 64  # units in the last place of y that a fit of the drift may leave


def checked(drift: object) -> Drift:
    """Return the drift, with a list of columns converted to a tuple.

    Raises:
        SettingError: If it is none of the kinds of ``Drift``.
    """
    drift = plain(drift)
    if isinstance(drift, list | tuple):
        columns = plain(tuple(drift))
        if (
            columns
            and len(set(columns)) == len(columns)
            and all(type(c) is int and c >= 0 for c in columns)
        ):
            return columns
    elif (
        drift in (None, "none", "constant")
        or callable(drift)
        or (type(drift) is int and drift >= 0)
    ):
        return cast(Drift, drift)
    do = 'pass "none", "constant", a degree, columns of X counted from 0, or a function of X'
    raise SettingError("a drift", repr(drift), do)


def check_determined(
    drift: Drift, X: Tensor, neighbours: int | None, outputs: OutputColumns
) -> None:
    """Refuse rows, or a number of neighbours, that do not determine the drift.

    Args:
        drift: The drift, as ``checked`` returns it.
        X: The inputs of the training rows [n, d].
        neighbours: Number of rows that predict each place, of each output where these have
            functions of their own; None: all.
        outputs: The coordinates that hold codes of outputs.

    Raises:
        DataError: If the rows do not determine it.
        SettingError: If there are fewer neighbours than functions.
    """
    F = basis(drift, X, X, outputs)
    n, p = F.shape
    got = None
    if p >= n:
        got = f"{counted(n, 'row')} for {p}"
    elif int(torch.linalg.matrix_rank(F / F.abs().amax(0).clamp_min(1e-300))) < p:
        got = "columns that depend on one another"
    do = "use a simpler drift"
    if of_each_output(drift, outputs):
        do = 'use a simpler drift, or drift="constant", one mean for all outputs'
        p //= len(output_of_rows(outputs, places(drift, X)).unique())
        if got is not None:
            got = f"{got}, where each output has functions of its own"
    if got is not None:
        raise DataError("more rows than functions in the drift, all different", got, do)
    if neighbours is not None and neighbours < p:
        raise SettingError(
            f"at least {counted(p, 'neighbour')} for this drift",
            str(neighbours),
            "use more, or a simpler drift",
        )


def nothing_left(F: Tensor, y: Tensor) -> str | None:
    """Return in words that functions F [n, p] leave nothing of y [n]; None if they leave something.

    Without anything left, the rows show no variance around the drift.
    """
    largest = float(y.abs().max())
    rounding = ROUNDING * torch.finfo(y.dtype).eps * largest
    if float(y.max() - y.min()) <= rounding:
        return f"y is constant, {float(y[0]):g} in every row"
    if F.shape[-1] == 0:
        return None
    left = y - F @ torch.linalg.lstsq(F, y[:, None]).solution[:, 0]
    if float(left.abs().max()) > rounding:
        return None
    if F.shape[-1] > 1 and bool(((F == 0) | (F == 1)).all()):
        return "y is constant, one number in all rows of each output"
    return "y less its drift is constant, 0 in every row"


def coordinates(drift: Drift, d: int) -> int:
    """Return how many of d columns are coordinates."""
    if isinstance(drift, tuple):
        return d - len(drift)
    return d


def coordinate_columns(drift: Drift, d: int) -> list[int]:
    """Return which of d columns are coordinates: all but those that the drift names."""
    return [c for c in range(d) if not (isinstance(drift, tuple) and c in drift)]


def places(drift: Drift, X: Float[Tensor, "*b n d"]) -> Tensor:
    """Return the columns of X that are coordinates: all but those that the drift names.

    Raises:
        DataError: If X lacks a column of the drift, or if no column remains.
    """
    if not isinstance(drift, tuple):
        return X
    d = X.shape[-1]
    if max(drift) >= d or len(drift) == d:
        raise DataError(
            f"coordinates, and columns {list(drift)} for the drift, in X",
            counted(d, "column"),
            "name columns that exist",
        )
    return X[..., coordinate_columns(drift, d)]


def of_each_output(drift: Drift, outputs: OutputColumns) -> bool:
    """Return whether each output has functions, and coefficients, of its own.

    That is so for the drifts that a recipe states without a view of the outputs. "constant" is one
    mean of all of them, and a function sees the codes.
    """
    return bool(outputs) and drift not in ("none", "constant") and not callable(drift)


def basis(
    drift: Drift,
    X: Float[Tensor, "*b n d"],
    train: Float[Tensor, "rows d"],
    outputs: OutputColumns,
) -> Float[Tensor, "*b n p"]:
    """Return the functions of the drift at X; the first of them is a constant.

    Where each output has functions of its own, as in cokriging, each function is repeated for every
    output that has training rows, and is 0 at the rows of the others. Pebesma (2004).

    With drift "none" there are no functions: p = 0. A polynomial consists of all monomials up to
    its degree of (x - centre) / spread, where centre is the mean of the training rows and spread
    the largest distance from it in any one coordinate. This scaling avoids columns of very
    different size (the square of metres beside 1) and leaves the span unchanged.

    Args:
        drift: The drift, as ``checked`` returns it.
        X: Inputs [*b, n, d].
        train: The inputs of the training rows [rows, d].
        outputs: The coordinates that hold codes of outputs.

    Raises:
        DataError: If a function given by the user returns another shape, or numbers that are not
            finite; for a row of an output without training rows, whose mean is unknown.
    """
    if drift == "none":
        return X[..., :0]
    F = torch.ones_like(X[..., :1])
    if isinstance(drift, tuple):
        F = torch.cat([F, X[..., list(drift)]], -1)
    elif isinstance(drift, int):
        F = torch.cat([F, *_monomials(drift, X, train, outputs)], -1)
    elif callable(drift):
        F = torch.cat([F, _values(drift, X)], -1)
    if not of_each_output(drift, outputs):
        return F
    known = output_of_rows(outputs, places(drift, train)).unique()
    own = output_of_rows(outputs, places(drift, X))[..., None] == known
    if not bool(own.any(-1).all()):
        wanted = "outputs with training rows, as each output has a mean of its own"
        absent = output_of_rows(outputs, places(drift, X))[~own.any(-1)][0]
        do = 'add rows of it, or fit with drift="constant", one mean for all outputs'
        raise DataError(wanted, f"output {int(absent)} without any", do)
    return (own.to(X)[..., None] * F[..., None, :]).flatten(-2)


def _monomials(degree: int, X: Tensor, train: Tensor, outputs: OutputColumns) -> list[Tensor]:
    """Return the monomials of degrees 1 to ``degree`` of scaled coordinates, [*b, n, 1] each.

    A column of codes is no coordinate.
    """
    columns = [c for c in range(X.shape[-1]) if c not in outputs]
    X, train = X[..., columns], train[..., columns]
    centre = train.mean(0)
    spread = (train - centre).abs().max() if columns else train.new_ones(())
    x = (X - centre) / torch.where(spread > 0, spread, torch.ones_like(spread))
    monomials = []
    for g in range(1, degree + 1):
        for factors in combinations_with_replacement(range(X.shape[-1]), g):
            monomials.append(x[..., list(factors)].prod(-1, keepdim=True))
    return monomials


def _values(drift: Callable[[Tensor], Tensor], X: Tensor) -> Tensor:
    """Return the values [*b, n, q] of a function given by the user."""
    rows = X.reshape(-1, X.shape[-1])
    values = drift(rows)
    if isinstance(values, Tensor) and values.ndim == 1:
        values = values[:, None]
    if (
        not isinstance(values, Tensor)
        or values.ndim != 2
        or len(values) != len(rows)
        or not bool(torch.isfinite(values).all())
    ):
        got = type(values).__name__
        if isinstance(values, Tensor):
            got = f"shape {list(values.shape)}"
        raise DataError(
            f"finite numbers [n] or [n, q] from the drift for {counted(len(rows), 'row')}",
            got,
            "correct the function",
        )
    return values.to(X).reshape(*X.shape[:-1], -1)
