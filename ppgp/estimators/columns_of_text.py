"""Columns of text, categories or dates in the frames that estimators are given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import DataError

__all__ = ["explained", "refuse_text"]

ENCODE = "encode it, for example by OneHotEncoder in a pipeline, or drop it"
AS_NUMBER = "make it a number, for example by .dt.year, or drop it"


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
