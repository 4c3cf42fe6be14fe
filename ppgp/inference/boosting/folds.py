"""Folds of rows, from a number, labels or a splitter of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import SettingError, counted, listed
from ...runtime.seeding import permutation
from ...tables.entries import is_missing

FEWEST = 2
EXPECTED = "a number of folds, one label per row, a splitter or pairs (train, test) as folds"


def checked_folds(folds: Any) -> Any:
    """Return ``folds`` with a number of NumPy, a Series and an iterator made plain.

    Raises:
        SettingError: If it can be neither a number, None, labels, a splitter nor pairs.
    """
    if isinstance(folds, np.integer):
        folds = folds.item()
    elif isinstance(folds, Iterator):
        folds = tuple(folds)
    elif _is_series(folds):
        folds = folds.to_numpy()
    # 4 or more: a number of folds is at most n // 2, so that no fewer rows can have folds
    whole = isinstance(folds, int) and not isinstance(folds, bool) and FEWEST <= folds < 2**31
    labels = isinstance(folds, tuple | list | np.ndarray | Tensor) and len_of(folds) >= 2 * FEWEST
    pairs = isinstance(folds, tuple | list) and len(folds) >= FEWEST and _are_pairs(folds)
    splitter = hasattr(folds, "get_n_splits") and not isinstance(folds, type)
    if folds is None or whole or labels or pairs or splitter:
        return folds
    do = f"pass {folds.__name__}(...)" if isinstance(folds, type) else "for example folds=5"
    raise SettingError(EXPECTED, repr(folds)[:60], do)


def _is_series(folds: Any) -> bool:
    """Return whether labels are a Series of pandas or another library."""
    return hasattr(folds, "to_numpy") and getattr(folds, "ndim", 1) == 1


def len_of(values: Any) -> int:
    """Return the number of entries; 0 of a tensor or an array without axes."""
    return len(values) if getattr(values, "ndim", 1) else 0


def _are_pairs(folds: Any) -> bool:
    return all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in folds)


def fold_of_rows(folds: Any, X: Tensor, y: Tensor, seed: int) -> Tensor:
    """Return the number of the fold of each row, [n], 0 .. J - 1.

    Args:
        folds: A number; one label per row, such as groups; a splitter of scikit-learn; or its
            pairs of indices ``(train, test)``, whose test rows are the folds.
        X: The rows [n, d].
        y: Their targets [n].
        seed: The seed of random folds.

    Raises:
        SettingError: If the folds do not hold every row once, or there are fewer than two.
    """
    n = len(y)
    if isinstance(folds, int):
        _check_number(folds, n)
        order = permutation(torch.Generator().manual_seed(seed), n)
        labels = torch.empty(n, dtype=torch.int64)
        for j, part in enumerate(order.tensor_split(folds)):
            labels[part] = j
        return labels
    if hasattr(folds, "get_n_splits"):
        return _of_pairs(_split(folds, X, y), n, f"{type(folds).__name__}, which has ")
    if isinstance(folds, Iterable) and not isinstance(folds, str):
        members = folds.tolist() if isinstance(folds, Tensor) else list(folds)
        # a label is no tuple, so that n tuples are the n pairs of leave-one-out
        if len(members) != n or (members and isinstance(members[0], tuple)):
            return _of_pairs(members, n)
        return _of_labels(members)
    raise SettingError(EXPECTED, repr(folds)[:60], "for example folds=5")


def _check_number(folds: int, n: int) -> None:
    """Raise SettingError unless n rows have so many folds of two rows or more."""
    most = n // 2
    if FEWEST <= folds <= most:
        return
    if most < FEWEST:
        raise SettingError(f"at least {2 * FEWEST} rows for folds", str(n), "pass folds=None")
    wanted = f"between {FEWEST} and {most} folds"
    if most == FEWEST:
        wanted = f"{FEWEST} folds"
    do = f"pass folds={min(5, most)}, or folds=None for one fit to all rows"
    if folds == n:
        do += "; sklearn's LeaveOneOut() has one row per fold"
    raise SettingError(f"{wanted} of {n} rows", str(folds), do)


def _of_labels(members: list[Any]) -> Tensor:
    """Return the fold of each row, given its label.

    Raises:
        SettingError: If a label is missing, all are the same, or they have no order.
    """
    missing = [i for i, label in enumerate(members) if is_missing(label)]
    if missing:
        got = f"none in {listed(missing, 'row')}"
        raise SettingError("a label of the fold of each row", got, "give these rows a label")
    try:
        labels = torch.as_tensor(np.unique(np.asarray(members), return_inverse=True)[1])
    except TypeError:
        do = "pass numbers alone, or text alone"
        raise SettingError("labels of one type as folds", "several", do) from None
    if int(labels.max()) + 1 < FEWEST:
        raise SettingError("at least two folds", "one label in all rows", "pass other labels")
    return labels.to(torch.int64)


def _split(splitter: Any, X: Tensor, y: Tensor) -> list[Any]:
    """Return the pairs of a splitter of scikit-learn."""
    try:
        return list(splitter.split(X.numpy(), y.numpy()))
    except (TypeError, ValueError) as error:
        raise SettingError(
            "a splitter that needs X and y alone as folds",
            f"{type(splitter).__name__}: {str(error).rstrip('.')}",
            "pass one label per row, such as groups, or pairs (train, test)",
        ) from error


def _of_pairs(pairs: Iterable[Any], n: int, splitter: str = "") -> Tensor:
    """Return the fold of each row, given pairs of indices whose second members are the folds.

    Args:
        pairs: The pairs.
        n: The number of rows.
        splitter: How a message begins that names where they come from.

    Raises:
        SettingError: If the folds do not hold every row once, or a pair trains on other rows than
            those outside its fold.
    """
    try:
        found = [tuple(torch.as_tensor(np.asarray(half)) for half in pair) for pair in pairs]
        rows = [(_mask(train, n), _mask(test, n)) for train, test in found]
    except (TypeError, ValueError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(EXPECTED, "something else", "for example folds=5") from None
    wanted, do = "every row in one of two folds or more", "pass KFold(5), or one label per row"
    if len(rows) < FEWEST:
        raise SettingError(wanted, f"{splitter}{counted(len(rows), 'fold')}", do)
    times = torch.stack([test for _, test in rows]).sum(0)
    for what, wrong in (("two folds", times > 1), ("no fold", times < 1)):
        if bool(wrong.any()):
            at = listed(torch.nonzero(wrong).flatten().tolist(), "row")
            raise SettingError(wanted, f"{splitter}{at} in {what}", do)
    for j, (train, test) in enumerate(rows):
        if not torch.equal(train, ~test):
            raise SettingError(
                "pairs (train, test) whose train rows are all rows outside the test rows",
                f"{splitter}others in pair {j}",
                "pass one label per row, as a member learns from all rows outside its fold",
            )
    return torch.stack([test for _, test in rows]).to(torch.uint8).argmax(0)


def _mask(part: Tensor, n: int) -> Tensor:
    """Return which of n rows are in a part, given their numbers or a mask.

    Raises:
        SettingError: If there are no such rows.
    """
    mask = torch.zeros(n, dtype=torch.bool)
    try:
        mask[part if part.dtype == torch.bool else part.long()] = True
    except IndexError:
        got = f"others, up to {int(part.max())}"
        raise SettingError(f"rows 0 to {n - 1} in pairs", got, "count rows from 0") from None
    return mask
