"""Results of ArviZ, of whichever version is installed, to compare those of the library to.

ArviZ 0.x rounds the length of the tail, 3 sqrt(S) of S draws, up and ArviZ 1.x rounds it down: the
tests take a number of draws where it is whole.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ppgp.posterior.arviz import arviz, is_modern


def psis(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smoothed log weights [..., draw] and k-hat [...]."""
    if is_modern(arviz()):
        return import_module("arviz_stats.base").array_stats.psislw(-log_ratios)
    return arviz().psislw(log_ratios)


def elpd(loo: Any) -> float:
    """Return the expected log density of a result of ``arviz.loo``."""
    return float(loo.elpd if is_modern(arviz()) else loo.elpd_loo)


def comparison(loo: dict[str, Any]) -> Any:
    """Return the table of ``arviz.compare`` by stacking, with all digits."""
    digits = {"round_to": "none"} if is_modern(arviz()) else {}
    return arviz().compare(loo, method="stacking", **digits)


def sensitivity(tree: Any, component: str) -> dict[str, float]:
    """Return the power-scaling sensitivity of each scalar variable to "prior" or "likelihood"."""
    if is_modern(arviz()):
        found = import_module("arviz_stats.psense").psense(tree, group=component)
    else:
        found = arviz().psens(tree, component=component)
    return {str(name): float(value) for name, value in found.data_vars.items()}
