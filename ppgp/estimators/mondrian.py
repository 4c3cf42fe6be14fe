"""Categories of rows, each with a threshold of its own (Mondrian conformal prediction)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..conformal import Score
from ..conformal.cross_sets import cross_guarantee, cross_region
from ..errors import DataError, SettingError, UnknownName
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.libraries import settings_unchanged

with settings_unchanged():
    import numpy as np

__all__ = ["by_category", "categories_of"]


def categories_of(X: Any, mondrian: Any) -> np.ndarray | None:
    """Return the category of each row [n], or None where there are none.

    Args:
        X: Inputs [n, d].
        mondrian: The name or the number of a column, a function of X that returns [n] categories,
            or None.

    Raises:
        UnknownName: If there is no such column.
        SettingError: If it is something else.
        DataError: If the function does not return one category per row.
    """
    if mondrian is None:
        return None
    if callable(mondrian):
        categories, n = np.asarray(mondrian(X)), np.shape(X)[0]
        if categories.shape != (n,):
            got = f"shape {list(categories.shape)}"
            do = "return one entry for each row of X"
            raise DataError(f"one category per row ({n}) from mondrian", got, do)
        return categories
    frame = hasattr(X, "columns")
    if isinstance(mondrian, str):
        names = list(map(str, X.columns)) if frame else []
        if mondrian not in names:
            raise UnknownName("column of categories", mondrian, names)
        return np.asarray(X[mondrian])
    if isinstance(mondrian, bool) or not isinstance(mondrian, int | np.integer):
        wanted = "the name or the number of a column, or a function of X, as mondrian"
        raise SettingError(wanted, repr(mondrian)[:60], "for example mondrian=0")
    d = np.shape(X)[1]
    if not -d <= mondrian < d:
        raise UnknownName("column of categories", str(mondrian), map(str, range(d)))
    return np.asarray(X.iloc[:, mondrian]) if frame else np.asarray(X)[:, mondrian]


def by_category(
    score: Score,
    new: list[Prediction],
    scores: list[Tensor],
    level: float,
    known: Sequence[np.ndarray],
    categories: np.ndarray,
) -> Region:
    """Return the CV+ sets whose left-out rows are those of the category of each new row.

    Args:
        score: The conformal score.
        new: The predictions of the m new rows, one per fold.
        scores: The scores of the left-out rows, one tensor per fold.
        level: The nominal level.
        known: The categories of the left-out rows, one array per fold.
        categories: Those of the new rows [m].

    Raises:
        DataError: If no left-out row has a category, or one alone.
    """
    parts: list[Region] = []
    order = []
    for category in np.unique(categories):
        here = torch.as_tensor(np.flatnonzero(categories == category))
        chosen = [torch.as_tensor(np.flatnonzero(labels == category)) for labels in known]
        folds = [k for k, rows in enumerate(chosen) if len(rows)]
        if len(folds) < 2:
            do = "merge categories, or use fewer rows per fold"
            raise DataError("training rows of every category in two folds", str(category), do)
        mine = [scores[k][chosen[k]] for k in folds]
        sentence = cross_guarantee(list(map(len, mine)), level, list(map(len, known)))
        parts.append(cross_region(score, [new[k][here] for k in folds], mine, level, sentence))
        order.append(here)
    back = torch.cat(order).argsort()

    def joined(name: str) -> Tensor | None:
        if getattr(parts[0], name) is None:
            return None
        return torch.cat([getattr(part, name) for part in parts])[back]

    # the weakest of the sentences holds in every category
    weakest = min(parts, key=lambda part: _stated(part.guarantee))
    return replace(
        weakest,
        lower=joined("lower"),
        upper=joined("upper"),
        labels=joined("labels"),
        guarantee=f"given the category, fixed beforehand: {weakest.guarantee}",
        n_calibration=sum(map(len, known)),
    )


def _stated(guarantee: str) -> float:
    """Return the coverage that a sentence of ``cross_guarantee`` states, 0 for none."""
    if not guarantee.startswith("coverage >= "):
        return 0.0
    return float(guarantee.split()[2])
