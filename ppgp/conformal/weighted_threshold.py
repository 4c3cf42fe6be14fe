"""The conformal threshold of calibration rows with weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..data.entries.arrays import as_tensor
from ..errors import DataError
from ..posterior.region import exact_level


def check_weights(weights: Any, n: int, new: bool = False) -> Tensor:
    """Return weights [n] in double precision, whatever the precision of y.

    Args:
        weights: Finite and not negative.
        n: How many rows there are.
        new: Whether the rows are new ones. Weights of calibration rows must not all be 0.

    Raises:
        DataError: If the weights do not fit; it names the rows that are wrong.
    """
    which = "new" if new else "calibration"
    w = as_tensor(weights, "weights", torch.float64)
    if w.shape != (n,):
        raise DataError(
            f"one weight per {which} row ({n})",
            f"shape {list(w.shape)}",
            "pass weights with shape [n]",
        )
    bad = torch.nonzero(~torch.isfinite(w) | (w < 0)).flatten().tolist()
    if bad:
        raise DataError(
            "finite weights, none below 0",
            f"{w[bad[0]]:g} in {which} row {bad[0]}",
            "a weight is a ratio of densities: check it",
        )
    if not new and not bool((w > 0).any()):
        raise DataError(
            "a calibration row with a weight above 0",
            "0 for all",
            "the calibration rows say nothing about the new ones",
        )
    return w


def weighted_threshold(scores: Tensor, level: float, weights: Tensor, new: Tensor) -> Tensor:
    """Return the weighted conformal threshold for each new weight, [m] or [m, 2].

    It is the smallest score whose weight, with all below, reaches the level of the total. The total
    counts the new row, at a score of +infinity. Tibshirani, Barber, Candes & Ramdas (2019), lemma
    3. The cost is O((n + m) log n). Only ratios of weights matter: both are divided by the largest
    of the calibration rows, in double precision.

    Args:
        scores: [n], or [n, 2] with one column per side.
        level: The coverage wanted, in (0, 1).
        weights: [n], of the calibration rows.
        new: [m], of the new rows.
    """
    weights, new = weights.double(), new.double()
    largest = weights.new_ones(())
    if len(weights):
        largest = weights.max().clamp_min(torch.finfo(torch.float64).tiny)
    weights, new = weights / largest, new / largest
    columns = scores.reshape(len(scores), -1)
    side = 1 - (1 - exact_level(level)) / columns.shape[1]
    result = []
    for column in columns.T:
        ordered, order = column.sort()
        total = weights[order].cumsum(0)
        wanted = float(side) * (total[-1] + new)
        # equal weights must give the exact rank, and a sum of n of them has n rounding errors
        index = torch.searchsorted(total, wanted * (1 - 4 * torch.finfo(total.dtype).eps))
        index = torch.where(wanted > 0, index, len(ordered))  # no weight anywhere: infinite
        padded = torch.cat([ordered, ordered.new_full((1,), torch.inf)])
        result.append(padded[index])
    return torch.stack(result, -1).reshape(len(new), *scores.shape[1:])
