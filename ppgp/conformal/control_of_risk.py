"""Conformal risk control: choose a parameter so that the expected loss stays below a bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..data.entries.arrays import as_tensor
from ..errors import DataError, SettingError, counted, listed


@dataclass(frozen=True)
class Controlled:
    """The smallest parameter that controls the risk.

    Attributes:
        parameter: Its value.
        index: Its place on the grid.
        guarantee: The sentence that holds.
    """

    parameter: float
    index: int
    guarantee: str


def risk_control(losses: Any, parameters: Any, risk: float, bound: float = 1.0) -> Controlled:
    """Choose the smallest parameter whose inflated mean loss is at most ``risk``.

    The parameter is lambda = inf{lambda: n/(n+1) mean loss(lambda) + B/(n+1) <= risk}.
    Angelopoulos, Bates, Fisch, Lei & Schuster (2024), theorem 1.

    Args:
        losses: [n, L], the loss of each calibration row at each parameter, in any units. It is at
            most ``bound``, may be negative, and never rises along the grid.
        parameters: [L], in rising order.
        risk: The bound wanted on the expected loss of a new row, between 0 and ``bound``; in the
            units of the loss, as ``bound`` is.
        bound: B, the largest possible loss.

    Returns:
        The parameter with its guarantee. Where no parameter is small enough in loss, it is the
        largest one, with a sentence that begins with "none".

    Raises:
        DataError: If shapes do not match, the parameters do not rise, a row's loss rises along the
            grid (the theorem needs that it does not), or a loss exceeds ``bound`` or is not finite.
        SettingError: If ``risk`` does not lie between 0 and ``bound``.

    Examples:
        Of five images, the share of missed pixels at three sizes of the mask. A size of 0.2 has
        mean loss 1/5, and (5 (1/5) + 1) / 6 = 1/3 is at most 0.4:

        >>> from ppgp import conformal
        >>> losses = [[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
        >>> found = conformal.risk_control(losses, [0.1, 0.2, 0.3], risk=0.4)
        >>> found.parameter
        0.2
        >>> found.guarantee
        'expected loss <= 0.4 (exchangeable rows, losses that fall to 0.4 or below)'
        >>> conformal.risk_control(losses, [0.1, 0.2, 0.3], risk=0.1).guarantee
        'none: 5 rows and the largest parameter leave a bound of 0.167 on the risk, above 0.1'
    """
    table, grid = as_tensor(losses, "losses"), as_tensor(parameters, "parameters")
    _check(table, grid, risk, bound)
    n = len(table)
    sums = table.double().sum(0)
    # in fractions, so that a bound that is met exactly counts as met
    allowed = Fraction(str(risk)) * (n + 1) - Fraction(str(bound))
    good = [j for j, total in enumerate(sums.tolist()) if Fraction(total) <= allowed]
    if not good:
        inflated = float((sums[-1] + bound) / (n + 1))
        sentence = (
            f"none: {counted(n, 'row')} and the largest parameter leave a bound of {inflated:.3g} "
            f"on the risk, above {risk:g}"
        )
        return Controlled(float(grid[-1]), len(grid) - 1, sentence)
    sentence = f"expected loss <= {risk} (exchangeable rows, losses that fall to {risk} or below)"
    return Controlled(float(grid[good[0]]), good[0], sentence)


def _check(table: Tensor, grid: Tensor, risk: float, bound: float) -> None:
    """Raise the error of the first argument that the theorem does not cover."""
    if table.ndim != 2 or grid.shape != table.shape[1:]:
        raise DataError(
            "losses [n, L] and parameters [L]",
            f"{list(table.shape)} and {list(grid.shape)}",
            "pass one column per parameter",
        )
    if not bool((grid.diff() > 0).all()):
        do = "sort them, and the columns of losses with them"
        raise DataError("parameters in rising order", "others", do)
    strange = torch.nonzero(~torch.isfinite(table).all(1)).flatten().tolist()
    if strange:
        got = f"NaN or infinity in {listed(strange, 'row')}"
        raise DataError("finite losses", got, "correct or drop those rows")
    rising = torch.nonzero((table.diff(dim=1) > 1e-12).any(1)).flatten().tolist()
    if rising:
        raise DataError(
            "losses that do not rise with the parameter",
            f"rising in {listed(rising, 'row')}",
            "use a monotone loss",
        )
    if not bool((table <= bound).all()):
        got = f"{float(table.max()):g}"
        raise DataError(f"losses of at most bound = {bound:g}", got, "raise bound")
    if not 0 < risk < bound:
        raise SettingError(f"a risk between 0 and bound = {bound:g}", repr(risk), "for example 0.1")
