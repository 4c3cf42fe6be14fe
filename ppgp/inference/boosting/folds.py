"""Folds of rows, from a number, labels or a splitter of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import SettingError

FEWEST = 2
EXPECTED = "a number of folds, one label per row, a splitter or pairs (train, test) as folds"


def checked_folds(folds: Any) -> Any:
    """Return ``folds`` with a number of NumPy converted to one of Python.

    Raises:
        SettingError: If it can be neither a number, None, labels, a splitter nor pairs.
    """
    if isinstance(folds, np.integer):
        folds = folds.item()
    # 4 or more: a number of folds is at most n // 2, so that no fewer rows can have folds
    whole = isinstance(folds, int) and not isinstance(folds, bool) and FEWEST <= folds < 2**31
    labels = isinstance(folds, tuple | list | np.ndarray | Tensor) and len_of(folds) >= 2 * FEWEST
    pairs = isinstance(folds, tuple | list) and len(folds) >= FEWEST and _are_pairs(folds)
    splitter = hasattr(folds, "get_n_splits") and not isinstance(folds, type)
    if folds is None or whole or labels or pairs or splitter:
        return folds
    raise SettingError(EXPECTED, repr(folds)[:60], "for example folds=5")


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
        if not FEWEST <= folds <= n // 2:
            raise SettingError(
                f"between {FEWEST} and {n // 2} folds of {n} rows", str(folds), "for example 5"
            )
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        labels = torch.empty(n, dtype=torch.int64)
        for j, part in enumerate(order.tensor_split(folds)):
            labels[part] = j
        return labels
    if hasattr(folds, "get_n_splits"):
        return _of_pairs(_split(folds, X, y), n)
    if isinstance(folds, Iterable) and not isinstance(folds, str):
        members = list(folds)
        # a label is no tuple, so that n tuples are the n pairs of leave-one-out
        if len(members) != n or (members and isinstance(members[0], tuple)):
            return _of_pairs(members, n)
        labels = torch.as_tensor(np.unique(np.asarray(members), return_inverse=True)[1])
        if int(labels.max()) + 1 < FEWEST:
            raise SettingError("at least two folds", "one label in all rows", "pass other labels")
        return labels.to(torch.int64)
    raise SettingError(EXPECTED, repr(folds)[:60], "for example folds=5")


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


def _of_pairs(pairs: Iterable[Any], n: int) -> Tensor:
    """Return the fold of each row, given pairs of indices whose second members are the folds."""
    labels = torch.full((n,), -1, dtype=torch.int64)
    try:
        tests = [torch.as_tensor(np.asarray(test)) for _, test in pairs]
    except (TypeError, ValueError):
        raise SettingError(EXPECTED, "something else", "for example folds=5") from None
    for j, test in enumerate(tests):
        if bool((labels[test] >= 0).any()):
            raise SettingError("every row in one fold", "a row in two folds", "use KFold")
        labels[test] = j
    if bool((labels < 0).any()) or len(tests) < FEWEST:
        raise SettingError(
            "every row in one of two folds or more", "rows in no fold, or one fold", "use KFold"
        )
    return labels
