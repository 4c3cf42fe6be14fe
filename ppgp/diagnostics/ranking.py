"""The ranking of different models by their log predictive densities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .stacking import stacking_weights

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AS_GOOD", "BEST", "NOT_RANKED", "WORSE", "ranking_of"]

BEST = "best"
AS_GOOD = "as good as the best"
WORSE = "worse"
NOT_RANKED = "not ranked"

SMALL = 4.0  # nats; the normal approximation does not hold for smaller differences
ERRORS = 2.0  # standard errors, past which a difference counts


def ranking_of(log_densities: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return one row per model, the best first.

    A model is worse than the best one where its elpd is lower by more than 4 nats and by more than
    two standard errors of the difference, which is that of the paired differences of the rows.
    Vehtari, Gelman & Gabry (2017), equation 24; the limit of 4 is that of Sivula, Magnusson,
    Matamoros & Vehtari (2020).

    Args:
        log_densities: ``{name: log p(y_i) of each row [n]}``, all of the same rows; NaN where a
            model has none, which is then not ranked.

    Returns:
        A table with the index ``name`` and the columns ``rank`` (1 is the best), ``elpd``,
        ``elpd_difference`` from the best and its standard error ``elpd_difference_se``,
        ``weight``, that of the model in the mixture that predicts best (``stacking_weights``),
        and ``ranking``, the conclusion in words.
    """
    import pandas as pd

    known = {name: v for name, v in log_densities.items() if np.isfinite(v).all()}
    order = sorted(known, key=lambda name: -known[name].sum())
    rows = []
    weights = np.ones(len(order))
    if len(order) > 1:
        weights = stacking_weights(np.stack([known[name] for name in order])).numpy()
    for place, name in enumerate(order):
        difference = known[name] - known[order[0]]
        total, error = float(difference.sum()), _error_of_sum(difference)
        rows.append(
            {
                "name": name,
                "rank": place + 1,
                "elpd": float(known[name].sum()),
                "elpd_difference": total,
                "elpd_difference_se": error,
                "weight": float(weights[place]),
                "ranking": BEST if place == 0 else _conclusion(total, error),
            }
        )
    for name in log_densities:
        if name not in known:
            rows.append({"name": name, "ranking": NOT_RANKED})
    return pd.DataFrame(rows).set_index("name")


def _error_of_sum(values: np.ndarray) -> float:
    """Return the standard error of a sum over rows."""
    n = len(values)
    return math.sqrt(n * values.var(ddof=1)) if n > 1 else math.nan


def _conclusion(difference: float, error: float) -> str:
    """Return whether a model is worse than the best one, in words."""
    return WORSE if difference < -max(SMALL, ERRORS * error) else AS_GOOD
