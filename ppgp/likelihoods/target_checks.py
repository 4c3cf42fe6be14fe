"""Checks of targets: class codes, counts, positive numbers."""

from __future__ import annotations

from typing import Any

import torch

from ..data.dataset import Dataset
from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, SettingError, counted

FOR_REGRESSION = "for regression use GP or LinearRegression ('gp' or 'linear' by name)"


def distinct(data: Dataset) -> tuple[list[float], str]:
    """Return the distinct values of y, and the first few of them as text."""
    values = torch.unique(data.y).tolist()
    shown = [f"{v:g}" for v in values[:6]]
    if len(values) > 6:
        shown.append("...")
    return values, ", ".join(shown)


def count_classes(data: Dataset) -> int:
    """Return the number of class names, or the largest code plus 1; at least 2."""
    if data.classes is not None:
        return max(len(data.classes), 2)
    return max(int(data.y.max()) + 1, 2)


def check_number_of_classes(classes: Any) -> None:
    """Check that an option is a number of classes, or None.

    Raises:
        SettingError: If it is neither.
    """
    if classes is None or (isinstance(classes, int) and classes > 1):  # True is not above 1
        return
    do = "leave it out, and it is counted"
    raise SettingError("a number of classes 2, 3, ...", repr(classes), do)


def known_classes(classes: int | None) -> int:
    """Return the number of classes.

    Raises:
        SettingError: If it is None, before the classes of the rows are counted.
    """
    if classes is None:
        do = "pass classes=, or fit with ppgp.fit, which counts them"
        raise SettingError("the number of classes", "None", do)
    return classes


def check_codes(data: Dataset, classes: int) -> None:
    """Check that the targets are the codes 0 .. classes - 1.

    Raises:
        DataError: Naming the values of y, if they are not.
    """
    values, shown = distinct(data)
    if all(v in range(classes) for v in values):
        return
    do = "recode y, or choose another likelihood"
    if any(v != int(v) for v in values):
        do = FOR_REGRESSION
    if data.classes is not None:
        names = ", ".join(map(str, data.classes[:6]))
        got = f"{len(data.classes)}: {names}{', ...' * (len(data.classes) > 6)}"
        raise DataError(f"at most {classes} labels in y", got, do)
    got = f"{counted(len(values), 'value')}: {shown}"
    raise DataError(f"labels 0 to {classes - 1} in y", got, do)


def check_counts_of_events(data: Dataset) -> None:
    """Check that the targets are counts 0, 1, 2, ...

    Raises:
        DataError: Naming the first row that is not.
    """
    wrong = torch.nonzero((data.y < 0) | (data.y != data.y.round())).flatten().tolist()
    if wrong:
        got = f"{float(data.y[wrong[0]]):g} in row {wrong[0]}"
        do = "choose another likelihood"
        if bool((data.y >= 0).all()):
            do += ", or round y"
        if data.trials is not None and bool(((data.y >= 0) & (data.y <= 1)).all()):
            do = "pass the number of events as y, which is the share times the trials"
        raise DataError("counts 0, 1, 2, ... in y", got, do)


def check_events_of_trials(data: Dataset, trials: torch.Tensor) -> None:
    """Check that trials [n] are 1, 2, 3, ..., and at least as many as the events in y.

    Raises:
        DataError: Naming the first row where they are not.
    """
    trials = trials.expand(data.y.shape)
    wrong = torch.nonzero((trials < 1) | (trials != trials.round())).flatten().tolist()
    if wrong:
        got = f"{float(trials[wrong[0]]):g} in row {wrong[0]}"
        raise DataError("trials 1, 2, 3, ...", got, "leave rows without trials out")
    wrong = torch.nonzero(data.y > trials).flatten().tolist()
    if wrong:
        row = wrong[0]
        got = f"{float(data.y[row]):g} of {float(trials[row]):g} in row {row}"
        raise DataError("at most as many events in y as trials", got, "check both columns")


def check_positive(data: Dataset) -> None:
    """Check that the targets are positive.

    Raises:
        DataError: Naming the first row that is not.
    """
    wrong = torch.nonzero(data.y <= 0).flatten().tolist()
    if wrong:
        got = f"{float(data.y[wrong[0]]):g} in row {wrong[0]}"
        raise DataError("positive targets in y", got, "choose another likelihood, or shift y")


def check_shares(data: Dataset) -> None:
    """Check that the targets are between 0 and 1, neither included.

    Raises:
        DataError: Naming the first row that is not.
    """
    wrong = torch.nonzero((data.y <= 0) | (data.y >= 1)).flatten().tolist()
    if wrong:
        got = f"{float(data.y[wrong[0]]):g} in row {wrong[0]}"
        do = "choose another likelihood, or shrink y to (y (n - 1) + 0.5) / n"
        raise DataError("targets above 0 and below 1 in y", got, do)


def check_every_class(data: Dataset, classes: int) -> None:
    """Check that every class has rows.

    Raises:
        DataError: Naming the first class that has none.
    """
    counts = torch.bincount(data.y.long(), minlength=classes).tolist()
    if 0 not in counts:
        return
    empty: object = counts.index(0)
    do = "merge it with the next one, or give its cutpoints as numbers"
    if data.classes is not None:
        empty = data.classes[counts.index(0)]
    elif empty == 0:
        do = "number the categories from 0, or pass labels as pandas' ordered categories"
    if sum(count > 0 for count in counts) == 1:
        do = "check the filter or the split that made the table"
        raise DataError("rows of several categories in y", "rows of one alone", do)
    raise DataError("rows of every category in y", f"none of category {empty!r}", do)


def warn_of_alphabet(data: Dataset) -> None:
    """Warn if ordered classes are texts, whose order is that of the alphabet."""
    if not data.alphabetical or data.classes is None:
        return
    names = " < ".join(map(str, data.classes[:6])) + " < ..." * (len(data.classes) > 6)
    warn(
        f"the labels of y are texts, whose order is taken from the alphabet: {names}; for another "
        "order pass labels as pandas' ordered categories",
        DataWarning,
    )
