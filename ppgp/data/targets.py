"""Targets as checked numbers: labels become codes."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, counted, listed
from ..tables.cells import refuse_quantity
from ..tables.entries import label_text, missing_rows
from ..tables.wrong_rows import WrongRows
from .entries.arrays import array_of, as_tensor, cast, of_tensor

Classes = tuple[Any, ...] | None
LARGEST_ROUNDING = 1e-3  # of targets, relative to their sd
FEWEST_OF_MANY = 20  # rows from which more classes than half of them are doubtful


def check_targets(y: Any, classes: Sequence[Any] | None, X: Tensor) -> tuple[Tensor, Classes]:
    """Return y as finite numbers [n] in the dtype and on the device of X [n, d], and its classes.

    Args:
        y: The targets: numbers, or labels, which become codes.
        classes: The names of the codes, if y holds codes already.
        X: The inputs.

    Returns:
        The targets [n], and the names of the codes, or None for numbers.

    Raises:
        DataError: If y is not finite, not one column, or has another length than X.
    """
    if y is None:
        raise DataError("targets y [n]", "None", "pass one number or label per row of X")
    if isinstance(y, str):
        do = f"write ppgp.Dataset.from_frame(table, {y!r})"
        raise DataError("targets y [n]", repr(y), do)
    given, classes = encode(y, classes)
    codes = cast(given, X, "y")
    if codes.ndim == 2 and codes.shape[1] == 1:
        codes = codes[:, 0]
    if codes.ndim != 1:
        do = "pass one target column, or all of them as data.Outputs(X, Y) to models.Multi(...)"
        raise DataError("y with shape [n]", f"shape {list(codes.shape)}", do)
    if len(codes) != len(X):
        raise DataError(
            f"as many targets as rows of X ({len(X)})", f"{len(codes)}", "align X and y"
        )
    bad = torch.nonzero(~torch.isfinite(codes)).flatten().tolist()
    if bad:
        raise WrongRows(
            "finite targets",
            lambda rows: f"NaN or infinity in {listed(rows, 'row')} of y",
            bad,
            "drop those rows" if bool(codes.isnan().any()) else "correct them, or drop those rows",
        )
    if classes is not None and FEWEST_OF_MANY <= len(codes) < 2 * len(codes.unique()):
        warn(
            f"y has {len(codes.unique())} classes in {counted(len(codes), 'row')}: pass numbers if "
            "it is a quantity",
            DataWarning,
        )
    if given.dtype != codes.dtype and len(codes) > 1:
        _say_if_rounded(given, codes)
    return codes, classes


def _say_if_rounded(given: Tensor, y: Tensor) -> None:
    """Warn with DataWarning if float32 rounds targets by much of their sd."""
    if y.dtype != torch.float32:
        return
    error = float((given.reshape(-1).cpu() - y.double().cpu()).abs().max())
    sd = float(given.std())
    if error > LARGEST_ROUNDING * sd > 0:
        warn(
            f"y is rounded to float32, the dtype of X, by up to {error:.2g} where its sd is "
            f"{sd:.2g}: pass X in float64, or subtract a constant from y",
            DataWarning,
        )


def encode(y: Any, classes: Sequence[Any] | None) -> tuple[Tensor, Classes]:
    """Return targets as numbers, and the names of the codes if they are labels.

    Args:
        y: The targets.
        classes: The names of the codes 0 .. K - 1, if y holds codes. If it is None, labels
            (strings, booleans) become codes in their sorted order, and pandas' ordered categories
            in theirs.

    Raises:
        DataError: If labels are missing or of several kinds, codes are not in 0 .. K - 1, or
            nearly all labels are numbers.
    """
    if classes is not None:
        return _codes(y, classes), tuple(classes)
    ordered = ordered_categories(y)
    if ordered is not None:
        codes, classes = ordered
        return as_tensor(codes, "y"), classes
    if isinstance(y, Tensor):
        codes = of_tensor(y, "y")
        if y.dtype == torch.bool:
            return codes, (False, True)
        return codes, None
    array = array_of(y, "y")
    if array.dtype.kind not in "OUSb":
        return as_tensor(array, "y"), None
    refuse_quantity(array)
    labels = _labels(array)
    if array.dtype.kind == "O" and all(_is_number(label) for label in labels):
        return as_tensor(array, "y"), None
    code = {label: i for i, label in enumerate(labels)}
    codes = [code[label] for label in array.ravel().tolist()]
    return torch.tensor(codes, dtype=torch.float64).reshape(array.shape), tuple(labels)


def ordered_categories(y: Any) -> tuple[np.ndarray, tuple[Any, ...]] | None:
    """Return the codes [n] and the names of pandas' ordered categories; None of anything else.

    Args:
        y: The targets.

    Raises:
        DataError: If a target is missing.
    """
    if not getattr(getattr(y, "dtype", None), "ordered", False):
        return None
    values = getattr(y, "array", y)
    codes = np.asarray(values.codes, dtype=float)
    _refuse_missing(np.flatnonzero(codes < 0).tolist())
    return codes, tuple(values.categories.tolist())


def in_order_of_texts(y: Any, classes: Classes) -> bool:
    """Return whether classes have the order of their texts, as the labels have no other.

    Args:
        y: The labels, as given.
        classes: The classes found in them; None: numbers.
    """
    texts = classes is not None and all(isinstance(label, str) for label in classes)
    return texts and ordered_categories(y) is None


def in_order(y: Any, classes: Sequence[Any]) -> Any:
    """Return a column of labels as pandas' ordered categories.

    Args:
        y: The Series of labels, or of numbers that stand for labels.
        classes: The labels in their order, or the texts of numbers.

    Raises:
        DataError: If a label is not among the classes, or two classes are the same.
    """
    import pandas as pd

    names = [label_text(label) for label in classes]
    absent = y.isna().to_numpy()
    texts = np.array([label_text(label) for label in y.tolist()], dtype=object)
    unknown = sorted({str(text) for text in texts[~absent]} - set(names))
    if unknown or len(set(names)) < len(names):
        got = ", ".join(unknown[:5]) or f"classes={', '.join(names)}"
        do = "name every label once in classes"
        raise DataError(f"the labels {', '.join(names)} in {y.name}", got, do)
    texts[absent] = None
    return pd.Series(pd.Categorical(texts, names, ordered=True), index=y.index, name=y.name)


def _codes(y: Any, classes: Sequence[Any]) -> Tensor:
    """Return codes after a check that they are whole numbers in 0 .. K - 1."""
    codes = as_tensor(y, "y")
    values = codes.flatten().tolist()
    stray = sorted({v for v in values if not 0 <= v < len(classes) or v != int(v)})
    if stray:
        raise DataError(
            f"labels 0 .. {len(classes) - 1} in y, one for each of classes",
            f"{stray[:5]}",
            "recode them, or leave classes out",
        )
    return codes


def _labels(array: np.ndarray) -> list[Any]:
    """Return the different labels in sorted order."""
    if array.dtype.kind == "O":
        _refuse_missing(missing_rows(array))
    labels = array.ravel().tolist()
    try:
        return sorted(set(labels))
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        got = f"{' and '.join(kinds)} mixed"
        if len(kinds) == 1:
            got = f"{kinds[0]}, which has no order"
        raise DataError("labels of one kind in y", got, "convert them to one kind") from None


def _refuse_missing(rows: Sequence[int]) -> None:
    """Raise DataError if there are rows without a target."""
    if rows:
        got = f"a missing one in y, {listed(rows, 'row')}"
        raise DataError("a target in every row", got, "drop those rows")


def _is_number(label: Any) -> bool:
    """Return whether a label is a number, which a boolean is not."""
    return isinstance(label, Number) and not isinstance(label, bool)
