"""What the estimators are given: rows, categories, columns with roles and ordered labels.

Columns of categories are chosen as scikit-learn's histogram boosting does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..data.categories import coded, codes_of
from ..data.columns import entries_of, names_of
from ..data.entries.arrays import as_pandas, labels_of
from ..data.targets import in_order_of_texts, ordered_categories
from ..errors import DataError, SettingError, UnknownName
from ..runtime.libraries import settings_unchanged

with settings_unchanged():
    import numpy as np
    from sklearn.utils.validation import validate_data

__all__ = [
    "FROM_DTYPE",
    "as_codes",
    "as_labels",
    "categorical_places",
    "columns_given",
    "explained",
    "in_declared_order",
    "refuse_text",
    "rows_given",
    "validated",
    "with_codes",
]

FROM_DTYPE = "from_dtype"
ENCODE = "encode it, for example by OneHotEncoder in a pipeline, or drop it"
AS_NUMBER = "make it a number, for example by .dt.year, or drop it"
EXPECTED = "columns by name, number or mask, 'from_dtype' or None as categorical_features"


def validated(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """Validate X and y as scikit-learn does, after a check of the names and kinds of columns."""
    X = as_pandas(X)
    names_of(X)
    refuse_text(X)
    return validate_data(estimator, X, *y, order="C", **options)


def rows_given(X: Any) -> Any:
    """Return rows for an estimator of another library: arrays in C order, frames of pandas.

    Args:
        X: Inputs [n, d]; other kinds of rows are returned as they are.
    """
    X = as_pandas(X)
    if type(X) is np.ndarray:
        return np.ascontiguousarray(X, X.dtype.newbyteorder("="))
    return X


def columns_given(
    offset: Any = None, trials: Any = None, groups: Any = None, weights: Any = None
) -> dict[str, Any]:
    """Return ``{role: column}`` of the columns that are not None."""
    columns = {"offset": offset, "trials": trials, "groups": groups, "weights": weights}
    return {role: column for role, column in columns.items() if column is not None}


def in_declared_order(labels: np.ndarray, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes of labels [n], and the code of each label.

    Args:
        labels: The validated labels.
        y: The labels as given; their order is that of pandas' ordered categories.

    Returns:
        The classes [K] that occur, and the codes [n].
    """
    classes, codes = np.unique(labels, return_inverse=True)
    ordered = ordered_categories(y)
    if ordered is None:
        return classes, codes
    place = {label: code for code, label in enumerate(ordered[1])}
    order = np.argsort([place[label] for label in classes.tolist()])
    return classes[order], np.argsort(order)[codes]


def as_labels(classes: np.ndarray, codes: np.ndarray, y: Any) -> dict[str, Any]:
    """Return ``y`` and ``classes`` of a Dataset.

    Args:
        classes: The classes [K].
        codes: The code of each label [n].
        y: The labels as given. Texts without an order stay texts, so that the Dataset knows it.
    """
    names = tuple(classes.tolist())
    if in_order_of_texts(y, names):
        return {"y": classes[codes]}
    return {"y": codes, "classes": names}


def categorical_places(given: Any, X: Any, takes_categories: bool) -> list[int]:
    """Return the numbers of the categorical columns.

    Args:
        given: Names or numbers of columns, a mask [d], "from_dtype", or None.
        X: The rows [n, d].
        takes_categories: Whether the model does, without which "from_dtype" is none.

    Raises:
        UnknownName: If there is no column of that name.
        SettingError: If it is something else, or there are no such columns.
    """
    labels = labels_of(X)
    if given is None:
        return []
    if isinstance(given, str):
        if given != FROM_DTYPE:
            raise SettingError(EXPECTED, repr(given), f"write [{given!r}]")
        if not takes_categories or labels is None:
            return []
        return [place for place, label in enumerate(labels) if _is_category(X[label])]
    if not isinstance(given, Iterable):
        raise SettingError(EXPECTED, repr(given)[:60], "for example [0, 2]")
    chosen, d = np.asarray(given).tolist(), np.shape(X)[1]
    if chosen and all(isinstance(one, bool) for one in chosen):
        if len(chosen) != d:
            wanted = f"a mask of {d} columns as categorical_features"
            raise SettingError(wanted, f"{len(chosen)}", "give one entry per column")
        return [place for place, one in enumerate(chosen) if one]
    return [_place(one, d, [str(label) for label in labels or []]) for one in chosen]


def _is_category(column: Any) -> bool:
    """Return whether a column has pandas' type of categories."""
    return getattr(column.dtype, "name", "") == "category"


def _place(one: Any, d: int, names: Sequence[str]) -> int:
    """Return the number of a column, given by its number or its name."""
    if isinstance(one, str):
        if one not in names:
            raise UnknownName("categorical column", one, names or map(str, range(d)))
        return names.index(one)
    if isinstance(one, bool) or not isinstance(one, int):
        raise SettingError(EXPECTED, repr(one)[:60], "for example [0, 2]")
    if not 0 <= one < d:
        raise SettingError(
            f"columns 0 to {d - 1} as categorical_features", f"column {one}", "count columns from 0"
        )
    return one


def as_codes(X: Any, places: Sequence[int]) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Return training rows with codes in place of text and categories, and the levels.

    Args:
        X: The rows; those of an array, which hold codes, are returned as they are.
        places: The numbers of the categorical columns.

    Returns:
        The rows, and ``{name: levels}`` of the columns that were text or categories.
    """
    if not hasattr(X, "iloc") or not places:
        return X, {}
    _, levels = coded(X.iloc[:, list(places)])
    return with_codes(X, levels), levels


def with_codes(X: Any, levels: Mapping[str, Sequence[str]]) -> Any:
    """Return rows with the codes of known levels; those of an array hold codes already.

    Args:
        X: The rows.
        levels: ``{name: levels}`` of the training rows.
    """
    X = as_pandas(X)
    labels = [label for label in labels_of(X) or [] if str(label) in levels]
    if not labels:
        return X
    X = X.copy()
    for label in labels:
        X[label] = codes_of(entries_of(X[label]), levels[str(label)]).numpy()
    return X


def refuse_text(X: Any, do: str = ENCODE) -> None:
    """Refuse the first column of a frame that does not hold numbers.

    Args:
        X: Rows; only a data frame of pandas is looked at.
        do: What to do about text.

    Raises:
        DataError: Naming the column, and an entry that is no number.
    """
    if not hasattr(X, "iloc") or not hasattr(X, "columns"):
        return
    for place, label in enumerate(X.columns):
        column = X.iloc[:, place]
        kind = getattr(column.dtype, "kind", "O")
        if kind in "biufc":
            continue
        entry = next((one for one in column.dropna() if not _is_number(one)), None)
        if entry is not None:
            advice = AS_NUMBER if kind in "mM" else do
            raise DataError(f"numbers in column {str(label)!r}", repr(entry)[:60], advice)


def _is_number(entry: Any) -> bool:
    """Return whether scikit-learn can read an entry as a number."""
    try:
        float(entry)
    except (TypeError, ValueError):
        return False
    return True


@contextmanager
def explained(X: Any, mondrian: Any) -> Iterator[None]:
    """Name a column of text or dates where an estimator fails for it.

    Args:
        X: The rows that the estimator is given.
        mondrian: The column of categories, or what gives them.

    Raises:
        DataError: If the estimator fails, and a column holds no numbers.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        do = ENCODE
        if isinstance(mondrian, str):
            do = "encode it by OneHotEncoder in a pipeline: the estimator gets the column of "
            do += "mondrian too"
        try:
            refuse_text(X, do)
        except DataError as found:
            raise found from error
        raise
