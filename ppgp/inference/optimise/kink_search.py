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

#: of the neighbourhoods, relative to 1 + |z|
RADII = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
#: within which the density rises as its gradient says, unless there is a kink
NEAR = (1e-5, 1e-4, 1e-3)
RISE = 0.1  # the least rise of a step, as a share of what the slope promises
EVALUATIONS = (50, 20)  # at most, in each neighbourhood, and for each coordinate
CLOSER = 100.0  # how much flatter than a mode has to be the climb aims to end
MOST = 200  # coordinates: each needs a gradient in the average

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]
Flat = Callable[[float], bool]


@dataclass(frozen=True)
class KinkEnd:
    """Where a search ended.

    Attributes:
        z: [p], the best point.
        value: The log density there.
        slope: The largest entry of the shortest average of gradients nearby.
        at_kink: Whether the gradient at the point itself is larger than at a mode.
    """

    z: np.ndarray
    value: float
    slope: float
    at_kink: bool


def to_kink(evaluate: Evaluate, z: np.ndarray, flat: Flat, least: float = 0.0) -> KinkEnd | None:
    """Return the mode at a kink near z [p], or None if the density has no kink there.

    The bundle method of Lemarechal (1975) and Wolfe (1975): a step along the shortest average of
    the gradients in a small neighbourhood either raises the density, or meets a gradient that makes
    the average shorter. The neighbourhoods shrink.

    Args:
        evaluate: The log density and its gradient [p], at z.
        z: The end of another search.
        flat: Whether a point with such a largest entry of the gradient is a mode.
        least: The least radius of a neighbourhood: inside a smaller one, values are rounding.
    """
    value, gradient = evaluate(z)
    steepness = float(np.linalg.norm(gradient))
    if len(z) > MOST or not math.isfinite(value) or not 0 < steepness < math.inf:
        return None
    unit = 1 + np.abs(z)
    slope = gradient * unit
    size = float(np.linalg.norm(slope))
    for length in NEAR:
        ahead, _ = evaluate(z + length * slope / size * unit)
        if ahead < value + RISE * length * size:
            break
    else:
        return None
    end = KinkEnd(z, value, float(np.abs(gradient).max()), False)
    for radius in RADII:
        if radius < least:
            break
        end = _in_neighbourhood(evaluate, end.z, unit, radius, flat)
    return end


def _in_neighbourhood(
    evaluate: Evaluate, z: np.ndarray, unit: np.ndarray, radius: float, flat: Flat
) -> KinkEnd:
    """Climb until gradients within a radius average to almost 0.

    Args:
        evaluate: The log density and its gradient [p], at z.
        z: The start, [p].
        unit: [p], the units of the coordinates in which the radius is meant.
        radius: The radius.
        flat: Whether a point with such a largest entry of the gradient is a mode.
    """
    value, here = evaluate(z)
    points, slopes = [z], [here * unit]
    shortest, weights = slopes[0], np.ones(1)
    for _ in range(EVALUATIONS[0] + EVALUATIONS[1] * len(z)):
        shortest, weights = _shortest_average(np.array(slopes))
        length = float(np.linalg.norm(shortest))
        if length == 0 or flat(CLOSER * float(np.abs(shortest / unit).max())):
            break
        ahead = z + radius * shortest / length * unit
        found, gradient = evaluate(ahead)
        if not math.isfinite(found):
            break
        kept = weights > 0
        points = [point for point, keep in zip(points, kept, strict=True) if keep]
        slopes = [slope for slope, keep in zip(slopes, kept, strict=True) if keep]
        if found > value + RISE * radius * length:
            z, value, here = ahead, found, gradient
            near = [float(np.linalg.norm((point - z) / unit)) <= 2 * radius for point in points]
            points = [point for point, keep in zip(points, near, strict=True) if keep]
            slopes = [slope for slope, keep in zip(slopes, near, strict=True) if keep]
        points.append(ahead)
        slopes.append(gradient * unit)
    slope = float(np.abs(shortest / unit).max())
    return KinkEnd(z, value, slope, not flat(float(np.abs(here).max())))


def _shortest_average(slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shortest convex combination [p] of vectors [k, p], and its weights [k]."""
    size = float(np.abs(slopes).max()) or 1.0
    rows = np.vstack([slopes.T / size, np.full((1, len(slopes)), 1e3)])
    try:
        weights, _ = optimize.nnls(rows, np.append(np.zeros(slopes.shape[1]), 1e3))
    except RuntimeError:  # it gives up after some iterations; the newest gradient is an average too
        weights = np.eye(len(slopes))[-1]
    weights /= weights.sum()
    return weights @ slopes, weights
