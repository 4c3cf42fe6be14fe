"""The drift of kriging: which functions of x the mean is a combination of, and which columns are coordinates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import DataError, SettingError, counted
from ..priors import plain

#: "none", "constant", a degree, columns of X, or a function of X [n, d] that returns [n] or [n, q]
Drift: TypeAlias = str | int | tuple[int, ...] | Callable[[Tensor], Tensor]


def checked(drift: object) -> Drift:
    """The drift with its columns as a tuple.

    Raises:
        SettingError: if it is none of the kinds of ``Drift``.
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
    elif drift in ("none", "constant") or callable(drift) or (type(drift) is int and drift >= 0):
        return drift  # type: ignore[return-value]
    do = 'pass "none", "constant", a degree, columns of X counted from 0, or a function of X'
    raise SettingError("a drift", repr(drift), do)


def places(drift: Drift, X: Float[Tensor, "*b n d"]) -> Tensor:
    """The columns of X that are coordinates: all but those that the drift names.

    Raises:
        DataError: if X lacks one of those, or none is left.
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
    return X[..., [c for c in range(d) if c not in drift]]


def basis(
    drift: Drift, X: Float[Tensor, "*b n d"], train: Float[Tensor, "rows d"]
) -> Float[Tensor, "*b n p"]:
    """The functions of the drift at X; a constant is always the first of them, but for "none", which has p = 0.

    A polynomial is all monomials up to its degree of (x - centre) / spread, with the centre and the largest distance from it, in
    any one coordinate, of the training rows: metres to the power of 2 would otherwise stand beside 1. What they span is the
    same.

    Raises:
        DataError: if the function of the user returns another shape, or no finite numbers.
    """
    if drift == "none":
        return X[..., :0]
    one = torch.ones_like(X[..., :1])
    if drift == "constant":
        return one
    if isinstance(drift, tuple):
        return torch.cat([one, X[..., list(drift)]], -1)
    if isinstance(drift, int):
        centre = train.mean(0)
        spread = (train - centre).abs().amax()
        x = (X - centre) / torch.where(spread > 0, spread, torch.ones_like(spread))
        terms = [
            c
            for g in range(1, drift + 1)
            for c in combinations_with_replacement(range(X.shape[-1]), g)
        ]
        return torch.cat([one, *(x[..., list(term)].prod(-1, keepdim=True) for term in terms)], -1)
    assert callable(drift)
    flat = X.reshape(-1, X.shape[-1])
    found = drift(flat)
    found = found[:, None] if isinstance(found, Tensor) and found.ndim == 1 else found
    if (
        not isinstance(found, Tensor)
        or found.ndim != 2
        or len(found) != len(flat)
        or not bool(torch.isfinite(found).all())
    ):
        got = f"shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise DataError(
            f"finite numbers [n] or [n, q] from the drift for {counted(len(flat), 'row')}",
            got,
            "correct the function",
        )
    return torch.cat([one, found.to(X).reshape(*X.shape[:-1], -1)], -1)
