"""Checks of what calibrates conformal sets: groups of rows, and the codes of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, listed

__all__ = ["check_codes", "group_labels", "groups_missing", "if_not_used", "refuse_names"]


def if_not_used(alike: int, n: int) -> str:
    """Return what the guarantee from n rows depends on, ``alike`` of which equal training rows."""
    return (
        f"if the fit did not use these rows: {alike} of {n} equal training rows, as new rows of "
        "such a table would, so that the two cannot be told apart"
    )


def groups_missing(where: str, elsewhere: str) -> DataError:
    """Return the error for groups that are given on one side alone."""
    return DataError(
        "groups for both the calibration rows and the new ones",
        f"none for the {where} rows",
        f"pass groups as for the {elsewhere} ones",
    )


def group_labels(groups: Any, n: int) -> np.ndarray:
    """Return one label per row, none of them missing.

    Raises:
        DataError: If rows have no label; it names them.
    """
    import pandas as pd

    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise DataError(
            f"one group per row ({n})",
            f"shape {list(labels.shape)}",
            "pass the groups of those rows",
        )
    missing = np.flatnonzero(pd.isna(labels)).tolist()
    if missing:
        got = f"None or NaN in {listed(missing, 'row')}"
        do = "drop those rows, or give them a group of their own"
        raise DataError("a group for every row", got, do)
    return labels


def refuse_names(y: Any) -> None:
    """Raise DataError for the names of classes in place of their codes."""
    if isinstance(y, Tensor):
        return
    names = [one for one in np.ravel(np.asarray(y, dtype=object)) if isinstance(one, str)]
    if names:
        do = "give their codes 0, 1, ..., such as [classes.index(name) for name in y]"
        raise DataError("codes of classes as y", f"the name {names[0]!r}", do)


def check_codes(y: Tensor, labels: int) -> None:
    """Raise DataError unless y [n] holds the columns 0 .. labels - 1 of the probabilities."""
    stray = torch.nonzero((y < 0) | (y >= labels) | (y != y.round())).flatten()
    if len(stray):
        row = int(stray[0])
        got = f"{y[row].item():g} in row {row}"
        do = "give the number of the label's column in the probabilities, from 0"
        raise DataError(f"labels 0..{labels - 1} as y", got, do)
