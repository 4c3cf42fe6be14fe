"""Whether a row depends on enough of the rows before it."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

__all__ = ["too_few_neighbours"]

ENOUGH = 15  # neighbours from which nothing is checked
MORE = 30  # neighbours to compare with
LARGER = 1.1  # ratio of standard deviations from which there is a warning


def too_few_neighbours(m: int, n: int, weights: Callable[[int], Tensor]) -> str | None:
    """Return the warning about few neighbours; None if there are enough.

    The logarithm of the standard deviation of each row given its neighbours, minus that given all
    rows before it, is on average the Kullback-Leibler divergence per row of the approximation from
    the process. Schafer, Katzfuss & Owhadi (2021). Given more neighbours it is smaller, so that
    the difference between two numbers of neighbours is a lower bound of it.

    Args:
        m: The number of neighbours.
        n: The number of rows.
        weights: A number of neighbours -> the weights of each row and its neighbours [k, n], those
            of the rows last: one over their variances.
    """
    more = min(MORE, n - 1)
    if m >= min(ENOUGH, more):
        return None
    few, many = (weights(number)[-1].log().mean() for number in (m, more))
    ratio = math.exp(0.5 * float(many - few))
    if ratio < LARGER:
        return None
    percent = f"{100 * (ratio - 1):.0f} %"
    return (
        f"given {m} neighbours, the standard deviations of rows are {percent} larger than given "
        f"{more}: a poor approximation; pass neighbours={more}"
    )
