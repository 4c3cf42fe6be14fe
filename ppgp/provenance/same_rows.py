"""Detection of rows of one table that occur in another.

Rows match if they are equal up to rounding. Matches count only if chance does not explain them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.spatial import KDTree

from .chance_matches import probability_by_chance

# numbers are equal if they differ by less than OF_SD standard deviations of their column, plus
# ROUNDING times their size: the rounding of single precision, to it and back
OF_SD = 1e-5
ROUNDING = 4 * float(np.finfo(np.float32).eps)
EXACT = 1e-4  # share of that tolerance: the rounding of double precision, to it and back
# a standard deviation larger than this many interquartile ranges reflects the largest numbers alone
HEAVY = 10.0
CHANCE = 1e-3  # matches with a larger probability under chance are no evidence
SURPRISE = 20.0  # nats of information in the order of rows that makes a repeated order evidence

Table: TypeAlias = np.ndarray


def same_rows(train: Table, rows: Table) -> np.ndarray:
    """Return which rows occur in a training table, where chance does not explain as many, [m] bool.

    See ``compared``.
    """
    return compared(train, rows)[0]


def compared(train: Table, rows: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows occur in a training table, where chance does not explain as many.

    Two rows are the same if each column differs by no more than 1e-5 of its standard deviation and
    the rounding of float32. The number of matches is compared with the matches among the training
    rows themselves. If all rows match in the order of the training rows, the probability of that
    order is used instead.

    Args:
        train: [n, k], the training rows.
        rows: [m, k], the rows to look for.

    Returns:
        Which rows occur there, where chance does not explain as many, [m] bool; and which are the
        same as a training row, whether by chance or not, [m] bool.
    """
    none = np.zeros(len(rows), dtype=bool)
    if not len(train) or not len(rows):
        return none, none
    train, rows = _without_missing(train, rows)
    scale = _rounding_scale(train)
    table, new = scale(train), scale(rows)
    # a tree cannot separate copies of a row, so that they form one node
    code = (table * np.random.default_rng(0).standard_normal(table.shape[1])).sum(1)
    _, first, label, counts = np.unique(
        code, return_index=True, return_inverse=True, return_counts=True
    )
    tree = KDTree(table[first], balanced_tree=False, compact_nodes=False)
    distance = tree.query(new, p=np.inf, distance_upper_bound=2.0)[0]
    copies = counts[label]
    alike = distance <= 1
    for radius in (1.0, EXACT):  # chance matches are rarer at the smaller radius
        match = distance <= radius
        if not match.any():
            return none, alike
        number = int(match.sum())
        if probability_by_chance(number, len(rows), radius, table, tree, copies) <= CHANCE:
            return match, alike
    aligned = len(rows) <= len(train) and bool((np.abs(new - table[: len(rows)]) <= 1).all())
    if aligned and _information(label[: len(rows)]) > SURPRISE:
        return alike, alike
    return none, alike


def _without_missing(train: Table, rows: Table) -> tuple[Table, Table]:
    """Return both tables with a number below all others of its column in place of NaN.

    A missing value then equals another, and no number.
    """
    if not np.isnan(train).any() and not np.isnan(rows).any():
        return train, rows
    both = np.concatenate([train, rows])
    both = np.where(np.isnan(both).all(0), 0.0, both)
    low, high = np.nanmin(both, axis=0), np.nanmax(both, axis=0)
    below = low - (high - low) - 1.0
    filled = np.where(np.isnan(both), below, both)
    return filled[: len(train)], filled[len(train) :]


def _rounding_scale(train: Table) -> Callable[[Table], Table]:
    """Return a transformation of columns after which rounding errors are 1 everywhere.

    It satisfies du = dx / (1e-5 sd + eps |x|).
    """
    low, high = np.quantile(train, [0.25, 0.75], axis=0)
    sd = train.std(0)
    spread = np.where(high > low, np.minimum(sd, HEAVY * (high - low)), sd)
    step = np.log(np.maximum(OF_SD * spread, 1e-290))

    def scale(X: Table) -> Table:
        size = np.log(ROUNDING) + np.log(np.maximum(np.abs(X), 1e-300))
        return np.sign(X) * np.logaddexp(0.0, size - step) / ROUNDING

    return scale


def _information(labels: np.ndarray) -> float:
    """Return minus the log probability of a sequence under its own transitions, in nats."""
    before, after = labels[:-1], labels[1:]
    _, pair, together = np.unique(
        np.stack([before, after], 1), axis=0, return_inverse=True, return_counts=True
    )
    alone = np.bincount(before)
    return float(-np.log(together[np.ravel(pair)] / alone[before]).sum())
