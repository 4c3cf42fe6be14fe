"""The ranks of the values of columns, of which trees are grown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Ranks", "ranks_of"]

RANKED = 50_000  # values of a column with a rank of their own
BEYOND = 1e300  # LightGBM's threshold beyond all values


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks 1, 2, ... of the values of a column.

    At most ``RANKED`` values have ranks of their own; of more rows, those between two values that
    were drawn share one.

    Attributes:
        edges: [r - 1], halfway between the largest value of a rank and the smallest of the next.
        missing: Whether a row that trees are grown on has no value.
    """

    edges: np.ndarray
    missing: bool = False

    @classmethod
    def of(cls, values: np.ndarray, sample: np.ndarray | slice) -> Ranks:
        """Return the ranks of a column.

        Args:
            values: [n], the column; NaN is a missing value.
            sample: Which rows decide where ranks end.
        """
        known = ~np.isnan(values)
        ends = np.unique(values[sample][known[sample]])
        present = values[known]
        place = np.searchsorted(ends, present)
        lowest, highest = np.full(len(ends) + 1, np.inf), np.full(len(ends) + 1, -np.inf)
        np.minimum.at(lowest, place, present)
        np.maximum.at(highest, place, present)
        taken = highest >= lowest
        below, above = highest[taken][:-1], lowest[taken][1:]
        edges = below / 2 + above / 2
        inside = (below <= edges) & (edges < above)  # not so between neighbouring floats
        return cls(np.where(inside, edges, below))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the ranks of values.

        A missing value has the rank of 0, unless trees are grown on some: then it has none, NaN.
        """
        if not self.missing:
            values = np.nan_to_num(values, nan=0.0)
        ranks = np.searchsorted(self.edges, values) + 1.0
        return np.where(np.isnan(values), np.nan, ranks)

    def thresholds(self, ranks: np.ndarray) -> np.ndarray:
        """Return the values that thresholds between ranks stand for."""
        ends = np.concatenate([[-BEYOND], self.edges, [BEYOND]])
        return ends[np.clip(np.floor(ranks), 0, len(self.edges) + 1).astype(int)]


def ranks_of(X: np.ndarray) -> list[Ranks]:
    """Return the ranks of each column of rows [n, d]."""
    sample: np.ndarray | slice = slice(None)
    if len(X) > RANKED:
        sample = np.random.default_rng(0).choice(len(X), RANKED, replace=False)
    return [Ranks.of(column.astype(np.float64), sample) for column in X.T]
