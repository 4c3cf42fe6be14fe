"""The rows that an estimator is fitted to, those that calibrate it, and what then holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DataError, SettingError
from ..runtime.libraries import settings_unchanged

with settings_unchanged():
    import numpy as np
    from sklearn.model_selection import (
        BaseCrossValidator,
        GroupKFold,
        GroupShuffleSplit,
        KFold,
        LeaveOneOut,
        ShuffleSplit,
        TimeSeriesSplit,
    )

__all__ = ["METHODS", "Folds", "check_weights", "folds_of", "group_codes"]

METHODS = ("split", "cv+", "jackknife+")
SHARE = 0.25  # of the rows that calibrate, where nothing else is asked for
FOLDS = 10
FEWEST = 2

BY_TIME = "rows in the order of time are not exchangeable"
BY_Y = "the folds depend on y"
NOT_ALL_OTHERS = "a fold is not fitted to all rows that it leaves out"
SHARED_GROUPS = "rows of one group are in the fit and among the calibration rows"
BY_GROUP = "CV+ has no finite-sample guarantee for rows of new groups"


@dataclass(frozen=True)
class Folds:
    """Pairs of training and calibration rows.

    Attributes:
        pairs: (train, test) row numbers; one pair for split.
        doubt: Why no coverage is guaranteed, or "".
        groups: [n], the group of each row if calibration rows are weighted by their group.
    """

    pairs: tuple[tuple[np.ndarray, np.ndarray], ...]
    doubt: str = ""
    groups: np.ndarray | None = None

    @property
    def heuristic(self) -> str:
        """The sentence that replaces a guarantee, or ""."""
        return f"heuristic: no coverage is guaranteed, as {self.doubt}" if self.doubt else ""


def folds_of(method: str, cv: Any, X: Any, y: np.ndarray, groups: Any, seed: int) -> Folds:
    """Return the rows of each fit and those that it leaves to calibrate it.

    Args:
        method: One of ``METHODS``.
        cv: None; the share of calibration rows of a split; the number of folds; a splitter of
            scikit-learn; or pairs of (train, test) row numbers. A split takes the last pair.
        X: Inputs [n, d].
        y: Targets [n].
        groups: [n], whose rows stay together, or None.
        seed: Of random splits.

    Raises:
        SettingError: If ``cv`` is none of these, or a row is left out by two folds.
        DataError: If there are too few rows.
    """
    n = len(y)
    if n < FEWEST:
        do = "give more rows, or freeze a fitted estimator: FrozenEstimator(estimator)"
        raise DataError("rows to fit and others to calibrate", f"n_samples={n}", do)
    if groups is not None:
        groups = group_codes(groups, n)
    splitter = _splitter(method, cv, n, groups is not None, seed)
    if isinstance(splitter, tuple):
        pairs, doubt = splitter, ""
    else:
        doubt = _doubt(splitter, method, X, groups)
        pairs = tuple(_split(splitter, X, y, groups))
    if method == "split":
        _check_parts(pairs[-1:], n)
        train, test = pairs[-1]
        if groups is not None and np.intersect1d(groups[train], groups[test]).size:
            doubt = SHARED_GROUPS
        return Folds(pairs[-1:], doubt, groups)
    return Folds(pairs, doubt or _doubt_of_pairs(pairs, n))


def _split(splitter: Any, X: Any, y: np.ndarray, groups: Any) -> Any:
    try:
        return list(splitter.split(X, y, **_groups_for(splitter, groups)))
    except ValueError as error:
        wanted = "a splitter that fits these rows"
        if groups is None and "groups" in str(error):
            got = f"none for {type(splitter).__name__}"
            raise SettingError("groups of rows", got, "write fit(X, y, groups=...)") from None
        raise SettingError(wanted, str(error), "change cv") from None


def _groups_for(splitter: Any, groups: Any) -> dict[str, Any]:
    """Return the groups as an option of ``split``, if it takes them."""
    # scikit-learn's splitters without requests of groups warn of them
    takes = hasattr(splitter, "set_split_request") or not hasattr(splitter, "get_metadata_routing")
    return {"groups": groups} if takes and groups is not None else {}


def _splitter(method: str, cv: Any, n: int, grouped: bool, seed: int) -> Any:
    """Return a splitter, or a tuple of pairs."""
    if method == "jackknife+":
        if cv is not None:
            raise SettingError("cv=None for jackknife+", repr(cv), "use method='cv+' for folds")
        return LeaveOneOut()
    if hasattr(cv, "split") and not isinstance(cv, str):
        return cv
    if cv is not None and (isinstance(cv, bool) or not isinstance(cv, int | float | np.number)):
        return _given_pairs(cv)
    return _of_share(cv, n, grouped, seed) if method == "split" else _of_folds(cv, n, grouped, seed)


def _of_share(cv: Any, n: int, grouped: bool, seed: int) -> Any:
    """Return a random split with a share of calibration rows."""
    share = SHARE if cv is None else float(cv)
    if not 0 < share < 1:
        do = "for example 0.25"
        if isinstance(cv, int | np.integer) and cv >= FEWEST:
            do += f", or use method='cv+' for {cv} folds"
        raise SettingError("a share of calibration rows in (0, 1) as cv", repr(cv), do)
    if grouped:
        return GroupShuffleSplit(1, test_size=share, random_state=seed)
    size = min(max(1, math.ceil(share * n)), n - 1)
    return ShuffleSplit(1, test_size=size, random_state=seed)


def _of_folds(cv: Any, n: int, grouped: bool, seed: int) -> Any:
    """Return random folds, or folds of whole groups."""
    folds = min(FOLDS, n) if cv is None else cv
    if not isinstance(folds, int | np.integer) or not FEWEST <= folds <= n:
        raise SettingError(f"between 2 and n = {n} folds as cv", repr(cv), "for example 10")
    if grouped:
        return GroupKFold(int(folds))
    return KFold(int(folds), shuffle=True, random_state=seed)


def _given_pairs(cv: Any) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Return the pairs of an iterable."""
    wanted = "a splitter, a number, or pairs (train, test) of row numbers as cv"
    try:
        pairs = tuple((np.asarray(train), np.asarray(test)) for train, test in cv)
    except (TypeError, ValueError):
        raise SettingError(wanted, repr(cv)[:60], "for example KFold(5)") from None
    if not pairs:
        raise SettingError(wanted, "none", "for example KFold(5)")
    return pairs


def _doubt(splitter: Any, method: str, X: Any, groups: Any) -> str:
    """Return why a splitter leaves no guarantee, or ""."""
    if isinstance(splitter, TimeSeriesSplit):
        return BY_TIME
    if groups is not None and method != "split":
        return BY_GROUP
    if isinstance(splitter, BaseCrossValidator) or hasattr(splitter, "get_n_splits"):
        try:  # one that can do without y does not look at it
            next(iter(splitter.split(X, **_groups_for(splitter, groups))))
        except (ValueError, TypeError):
            return BY_Y
    return ""


def _marked(rows: np.ndarray, n: int) -> np.ndarray:
    """Return a mask [n] of some rows."""
    mask = np.zeros(n, dtype=bool)
    mask[rows] = True
    return mask


def _check_parts(pairs: Sequence[tuple[np.ndarray, np.ndarray]], n: int) -> None:
    for train, test in pairs:
        if not len(train) or not len(test):
            got = f"{len(train)} and {len(test)}"
            raise SettingError("training and calibration rows in every split", got, "change cv")
        if _marked(train, n)[test].any():
            got = "rows in both parts"
            raise SettingError("calibration rows that the fit does not use", got, "change cv")


def _doubt_of_pairs(pairs: Sequence[tuple[np.ndarray, np.ndarray]], n: int) -> str:
    """Check that folds are disjoint, and return why they leave no guarantee, or ""."""
    _check_parts(pairs, n)
    if len(pairs) < FEWEST:
        raise SettingError("two or more folds for CV+", f"{len(pairs)}", "use method='split'")
    if np.bincount(np.concatenate([test for _, test in pairs])).max() > 1:
        do = "use KFold rather than repeated or random splits"
        raise SettingError("folds that leave out each row once", "a row left out twice", do)
    if any(not (_marked(train, n) | _marked(test, n)).all() for train, test in pairs):
        return NOT_ALL_OTHERS
    return ""


def group_codes(groups: Any, n: int) -> np.ndarray:
    """Return one group number per row."""
    labels = np.asarray(groups)
    if labels.shape != (n,):
        got = f"shape {list(labels.shape)}"
        raise DataError(f"one group per row ({n})", got, "pass the groups of those rows")
    return np.unique(labels, return_inverse=True)[1]


def check_weights(weights: Any, n: int) -> None:
    """Raise DataError unless the weights of rows, where they are given, are [n] or one number."""
    shape = np.shape(weights)
    if shape not in ((), (n,)):
        got = f"shape {list(shape)}"
        raise DataError(f"one sample_weight per row ({n})", got, "pass the weights of those rows")
