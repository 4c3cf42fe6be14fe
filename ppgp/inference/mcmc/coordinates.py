"""The coordinates of a sampler: an affine map of z, and a bend of the logs of positive numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from torch.distributions import transforms

from ...density.target import Target

#: How fast a bent coordinate grows below the origin. A log whose density falls like exp(z), as
#: that of a scale near 0 does, then has a tail like that of a normal distribution.
BEND = 1.0
#: A log is bent if the density falls by less than exp(-LIGHTER * DEPTH) from the origin to DEPTH
#: below it. Where it falls like exp(z), it falls by about exp(-DEPTH).
DEPTH, LIGHTER = 4.0, 2.0

Origin = tuple[Tensor, Tensor]


class Coordinates:
    """The map z = origin + bend(root w) from the coordinates w of a sampler.

    ``bend`` is the identity but for the logs v of positive numbers that may be near 0. There it
    is v sqrt(1 + BEND^2 v^2) for v < 0. The density of a scale near 0 is flat, so that of its log
    falls only like exp(v), and a trajectory that enters this tail needs many steps to return. The
    density of w has the log Jacobian added, so that the draws of z are the same law.

    Args:
        target: The density of z [p].
        preconditioner: Origin [p] and root [p, p]; None: w is z.
    """

    def __init__(self, target: Target, preconditioner: Origin | None) -> None:
        self.preconditioner = None
        self.bent = np.zeros(0, dtype=int)
        if preconditioner is not None:
            origin, root = (x.double().cpu().numpy() for x in preconditioner)
            self.preconditioner = origin, root
            self.bent = _heavy_tails(target, origin)

    def point(self, w: np.ndarray) -> np.ndarray:
        """Return z [p], given w [p]."""
        if self.preconditioner is None:
            return w
        origin, root = self.preconditioner
        v = root @ w
        if len(self.bent):
            v[self.bent] = _bend(v[self.bent])
        return origin + v

    def inverse(self, z: np.ndarray) -> np.ndarray:
        """Return w [p], given z [p]."""
        if self.preconditioner is None:
            return z
        origin, root = self.preconditioner
        v = z - origin
        v[self.bent] = _unbend(v[self.bent])
        return np.linalg.solve(root, v)

    def density(
        self, w: np.ndarray, value: float, gradient: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return the log density at w and its gradient by w [p], up to a constant.

        Args:
            w: [p].
            value: The log density at z.
            gradient: That of ``value`` by z, [p].
        """
        if self.preconditioner is None:
            return value, gradient
        _, root = self.preconditioner
        if len(self.bent):
            v = root[self.bent] @ w
            slope, of_log_slope = _slope(v), _slope_of_log_slope(v)
            value = value + float(np.log(slope).sum())
            gradient = gradient.copy()
            gradient[self.bent] = gradient[self.bent] * slope + of_log_slope
        return value, gradient @ root

    def log_jacobian(self, z: np.ndarray) -> np.ndarray:
        """Return what ``density`` adds to the log density at z, [draw] given [draw, p]."""
        if self.preconditioner is None or not len(self.bent):
            return np.zeros(len(z))
        origin, _ = self.preconditioner
        v = _unbend((z - origin)[:, self.bent])
        return np.log(_slope(v)).sum(1)


def _heavy_tails(target: Target, origin: np.ndarray) -> np.ndarray:
    """Return the places in z [p] of the logs of positive numbers that may be near 0."""
    logs = [one for one in target.slices.values() if _is_exp(one.transform)]
    places = np.array([j for one in logs for j in range(one.start, one.stop)], dtype=int)
    callback = target.callback()
    most, _ = callback(origin)
    down = DEPTH * np.eye(len(origin))[places]
    drops = np.array([most - callback(origin - step)[0] for step in down])
    return places[drops < LIGHTER * DEPTH]  # a density that is not finite has no such tail


def _is_exp(transform: Any) -> bool:
    """Return whether a transform is exp, perhaps with a linear map after it."""
    if isinstance(transform, transforms.IndependentTransform):
        return _is_exp(transform.base_transform)
    if isinstance(transform, transforms.ComposeTransform):
        first, *others = transform.parts or [None]
        return _is_exp(first) and all(isinstance(t, transforms.AffineTransform) for t in others)
    return isinstance(transform, transforms.ExpTransform)


def _bend(v: np.ndarray) -> np.ndarray:
    return np.where(v < 0, v * np.sqrt(1 + (BEND * v) ** 2), v)


def _unbend(b: np.ndarray) -> np.ndarray:
    # (BEND v)^2 is the positive root of x (1 + x) = (BEND b)^2, without cancellation
    c = (BEND * b) ** 2
    return np.where(b < 0, b * np.sqrt(2 / (1 + np.sqrt(1 + 4 * c))), b)


def _slope(v: np.ndarray) -> np.ndarray:
    c = (BEND * v) ** 2
    return np.where(v < 0, (1 + 2 * c) / np.sqrt(1 + c), 1.0)


def _slope_of_log_slope(v: np.ndarray) -> np.ndarray:
    c = (BEND * v) ** 2
    return np.where(v < 0, BEND**2 * v * (4 / (1 + 2 * c) - 1 / (1 + c)), 0.0)
