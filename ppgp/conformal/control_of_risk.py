"""Conformal risk control: a parameter chosen so that the expected loss, not only the miscoverage, stays below a bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from ..data.arrays import as_tensor
from ..errors import DataError, SettingError, counted, listed


@dataclass(frozen=True)
class Controlled:
    """The smallest parameter that controls the risk, its place on the grid, and the sentence that holds."""

    parameter: float
    index: int
    guarantee: str


def risk_control(losses: Any, parameters: Any, risk: float, bound: float = 1.0) -> Controlled:
    """lambda = inf{lambda: n/(n+1) mean loss(lambda) + B/(n+1) <= risk}. Angelopoulos, Bates, Fisch, Lei & Schuster (2024), theorem 1.

    Args:
        losses: [n, L], of each calibration row at each parameter: between anything and ``bound``, never rising along the grid.
        parameters: [L], rising.
        risk: the bound wanted on the expected loss of a new row.
        bound: B, the largest loss there can be.

    Raises:
        DataError: if a row's loss rises along the grid (the theorem needs that it does not), or exceeds ``bound``.
    """
    table, grid = as_tensor(losses, "losses"), as_tensor(parameters, "parameters")
    if table.ndim != 2 or grid.shape != table.shape[1:]:
        raise DataError(
            "losses [n, L] and parameters [L]",
            f"{list(table.shape)} and {list(grid.shape)}",
            "one column a parameter",
        )
    if not bool((grid.diff() > 0).all()):
        raise DataError(
            "parameters in rising order", "others", "sort them, and the columns of losses with them"
        )
    rising = torch.nonzero((table.diff(dim=1) > 1e-12).any(1)).flatten().tolist()
    if rising:
        raise DataError(
            "losses that do not rise with the parameter",
            f"rising in {listed(rising, 'row')}",
            "use a monotone loss",
        )
    if not bool((table <= bound).all()) or not bool(torch.isfinite(table).all()):
        raise DataError(
            f"losses of at most bound = {bound:g}", f"{float(table.max()):g}", "raise bound"
        )
    if not 0 < risk < bound:
        raise SettingError(f"a risk between 0 and bound = {bound:g}", repr(risk), "for example 0.1")
    n = len(table)
    sums = table.double().sum(0)
    inflated = (sums + bound) / (n + 1)
    allowed = Fraction(str(risk)) * (n + 1) - Fraction(
        str(bound)
    )  # exactly: a bound that is met counts as met
    good = [j for j, total in enumerate(sums.tolist()) if Fraction(total) <= allowed]
    if not len(good):
        return Controlled(
            float(grid[-1]),
            len(grid) - 1,
            f"none: {counted(n, 'row')} and the largest parameter leave a bound of {float(inflated[-1]):.3g} on the risk, above {risk:g}",
        )
    index = int(good[0])
    return Controlled(
        float(grid[index]),
        index,
        f"expected loss <= {risk:g} (exchangeable rows, losses that fall to {risk:g} or below)",
    )
