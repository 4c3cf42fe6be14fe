"""The end of a search at a kink of the density, where its gradient is not 0.

Absolute errors, quantiles and hinges have such modes: some residuals are exactly 0 there. A mode is
told by the gradients of its neighbourhood: 0 is an average of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize

__all__ = ["KinkEnd", "to_kink"]

RADII = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)  # of the neighbourhoods, relative to 1 + |z|
NEAR = 1e-5  # within which the density rises as its gradient says, unless there is a kink
RISE = 0.1  # the least rise of a step, as a share of what the slope promises
EVALUATIONS = (100, 30)  # in each neighbourhood, and for each coordinate
MOST = 200  # coordinates: each needs a gradient in the average

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class KinkEnd:
    """Where a search ended.

    Attributes:
        z: [p], the best point.
        value: The log density there.
        slope: The largest entry of the shortest average of gradients nearby.
        directions: In how many directions the density has a kink.
    """

    z: np.ndarray
    value: float
    slope: float
    directions: int


def to_kink(evaluate: Evaluate, z: np.ndarray, least: float) -> KinkEnd | None:
    """Return the mode at a kink near z [p], or None if the density has no kink there.

    The bundle method of Lemarechal (1975) and Wolfe (1975): a step along the shortest average of
    the gradients in a small neighbourhood either raises the density, or meets a gradient that makes
    the average shorter. The neighbourhoods shrink.

    Args:
        evaluate: z -> the log density, and its gradient [p].
        z: The end of another search.
        least: The slope below which a point is a mode.
    """
    value, gradient = evaluate(z)
    steepness = float(np.linalg.norm(gradient))
    if len(z) > MOST or not math.isfinite(value) or not 0 < steepness < math.inf:
        return None
    unit = 1 + np.abs(z)
    slope = gradient * unit
    length = NEAR / float(np.linalg.norm(slope))
    ahead, _ = evaluate(z + length * slope * unit)
    if ahead >= value + RISE * length * float(slope @ slope):
        return None
    end = KinkEnd(z, value, float(np.abs(gradient).max()), 0)
    for radius in RADII:
        end = _in_neighbourhood(evaluate, end.z, unit, radius, least)
        if end.slope > least:
            break
    return end if end.slope <= least else KinkEnd(end.z, end.value, end.slope, 0)


def _in_neighbourhood(
    evaluate: Evaluate, z: np.ndarray, unit: np.ndarray, radius: float, least: float
) -> KinkEnd:
    """Climb until gradients within a radius average to almost 0.

    Args:
        evaluate: z -> the log density, and its gradient [p].
        z: The start, [p].
        unit: [p], the units of the coordinates in which the radius is meant.
        radius: The radius.
        least: The slope at which the climb ends.
    """
    value, gradient = evaluate(z)
    points, slopes = [z], [gradient * unit]
    shortest, weights = slopes[0], np.ones(1)
    for _ in range(EVALUATIONS[0] + EVALUATIONS[1] * len(z)):
        shortest, weights = _shortest_average(np.array(slopes))
        length = float(np.linalg.norm(shortest))
        if float(np.abs(shortest / unit).max()) <= least or length == 0:
            break
        ahead = z + radius * shortest / length * unit
        found, gradient = evaluate(ahead)
        if not math.isfinite(found):
            break
        kept = weights > 0
        points = [point for point, keep in zip(points, kept, strict=True) if keep]
        slopes = [slope for slope, keep in zip(slopes, kept, strict=True) if keep]
        if found > value + RISE * radius * length:
            z, value = ahead, found
            near = [float(np.linalg.norm((point - z) / unit)) <= 2 * radius for point in points]
            points = [point for point, keep in zip(points, near, strict=True) if keep]
            slopes = [slope for slope, keep in zip(slopes, near, strict=True) if keep]
        points.append(ahead)
        slopes.append(gradient * unit)
    slope = float(np.abs(shortest / unit).max())
    return KinkEnd(z, value, slope, max(0, int((weights > 0).sum()) - 1))


def _shortest_average(slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shortest convex combination [p] of vectors [k, p], and its weights [k]."""
    size = float(np.abs(slopes).max()) or 1.0
    rows = np.vstack([slopes.T / size, np.full((1, len(slopes)), 1e3)])
    weights, _ = optimize.nnls(rows, np.append(np.zeros(slopes.shape[1]), 1e3))
    weights /= weights.sum()
    return weights @ slopes, weights
