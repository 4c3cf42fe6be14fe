"""Means and squared deviations of columns, chunk by chunk.

Chan, Golub & LeVeque (1983): the moments of two sets of rows give those of their union, without
the cancellation of a sum of squares minus a squared sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["RunningMoments"]


@dataclass(frozen=True, eq=False)
class RunningMoments:
    """The moments of columns over some rows, in float64.

    Attributes:
        weight: The number of rows; the sum of their weights, where rows have weights.
        shift: A value of each column near its mean, [columns].
        offset: The means less the shift, [columns], so that numbers that share most of their digits
            lose none.
        squares: The sums of squared deviations from the means, [columns].
        low: The least values, [columns].
        high: The largest values, [columns].
    """

    weight: float
    shift: np.ndarray
    offset: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def none(cls, columns: int) -> RunningMoments:
        """Return the moments over no row."""
        zeros = np.zeros(columns)
        return cls(0.0, zeros, zeros, zeros, np.full(columns, np.inf), np.full(columns, -np.inf))

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray | None = None) -> RunningMoments:
        """Return the moments of a chunk of rows.

        Args:
            values: [columns, rows] in float64, with at least one row.
            weights: How often each row counts, [rows], above 0; None: once.
        """
        first = values[:, :1]
        moved = values - first
        if weights is None:
            weight = float(values.shape[1])
            mean = moved.mean(1)
            squares = np.square(moved - mean[:, None]).sum(1)
        else:
            weight = float(weights.sum())
            mean = (moved * weights).sum(1) / weight
            squares = (np.square(moved - mean[:, None]) * weights).sum(1)
        return cls(weight, first[:, 0], mean, squares, values.min(1), values.max(1))

    def joined(self, other: RunningMoments) -> RunningMoments:
        """Return the moments over the rows of both."""
        if not other.weight:
            return self
        if not self.weight:
            return other
        weight = self.weight + other.weight
        apart = (other.shift - self.shift) + (other.offset - self.offset)
        share = other.weight / weight
        return RunningMoments(
            weight,
            self.shift,
            self.offset + apart * share,
            self.squares + other.squares + np.square(apart) * (self.weight * share),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def mean(self) -> np.ndarray:
        """The means, [columns]."""
        return self.shift + self.offset

    @property
    def sd(self) -> np.ndarray:
        """The standard deviations, [columns], with the number of rows as divisor."""
        return np.sqrt(self.squares / self.weight)
