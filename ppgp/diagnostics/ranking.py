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
            model has none, which is then not ranked. A model with a density of 0 has the elpd -inf.

    Returns:
        A table with the index ``name`` and the columns ``rank`` (1 is the best), ``elpd``,
        ``elpd_difference`` from the best and its standard error ``elpd_difference_se``,
        ``weight``, that of the model in the mixture that predicts best (``stacking_weights``),
        and ``ranking``, the conclusion in words.
    """
    import pandas as pd

    known = {name: v for name, v in log_densities.items() if not np.isnan(v).any()}
    order = sorted(known, key=lambda name: -known[name].sum())
    rows = []
    weights = _weights([known[name] for name in order])
    for place, name in enumerate(order):
        total, error = _difference(known[name], known[order[0]])
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


def _weights(log_densities: list[np.ndarray]) -> np.ndarray:
    """Return the weights of stacking; NaN where every model calls some row impossible."""
    if len(log_densities) < 2:
        return np.ones(len(log_densities))
    table = np.stack(log_densities)
    if not np.isfinite(table.max(0)).all():
        return np.full(len(table), math.nan)
    return stacking_weights(table).numpy()


def _difference(own: np.ndarray, best: np.ndarray) -> tuple[float, float]:
    """Return the difference of two elpds and its standard error, NaN where one is -inf."""
    if np.isneginf(own.sum()):
        return (math.nan if np.isneginf(best.sum()) else -math.inf), math.nan
    difference = own - best
    return float(difference.sum()), _error_of_sum(difference)


def _error_of_sum(values: np.ndarray) -> float:
    """Return the standard error of a sum over rows."""
    n = len(values)
    return math.sqrt(n * values.var(ddof=1)) if n > 1 else math.nan


def _conclusion(difference: float, error: float) -> str:
    """Return whether a model is worse than the best one, in words."""
    if math.isnan(difference):  # the density of both is 0 somewhere
        return AS_GOOD
    if math.isinf(difference):
        return WORSE
    return WORSE if difference < -max(SMALL, ERRORS * error) else AS_GOOD
