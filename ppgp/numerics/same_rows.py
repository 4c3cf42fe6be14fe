"""Which rows of one table stand in another: the same up to rounding, and more of them than chance gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy import stats
from scipy.spatial import KDTree
from scipy.spatial.distance import pdist

OF_SD = 1e-5  # what rounding may do to a number: this share of the sd of its column,
HEAVY = 10.0  # interquartile ranges, beyond which the sd of a column is that of its largest numbers
ROUNDING = 4 * float(
    np.finfo(np.float32).eps
)  # and this share of itself: single precision, there and back
EXACT = 1e-4  # of both together: double precision, there and back
CHANCE = 1e-3  # a number of matches that chance gives more often is no evidence
SURPRISE = 20.0  # nats of a sequence of rows that is repeated in its order
LARGEST_SAMPLE = 500  # rows that say how often two rows are the same by chance
SAMPLE_BUDGET = 10_000_000  # numbers in the differences between them
NEAR = 50  # pairs of rows among the nearest, from which a chance is scaled down

Table: TypeAlias = np.ndarray


def same_rows(train: Table, rows: Table) -> np.ndarray:
    """[m] bool: which of ``rows`` [m, k] stand among ``train`` [n, k], where chance does not explain as many.

    Two rows are the same where each column differs by no more than 1e-5 of its sd and the rounding of float32. Matches are counted
    against those that the rows of ``train`` have among themselves; where all rows match and their order does too, against the
    probability of that order.
    """
    none = np.zeros(len(rows), dtype=bool)
    if not len(train) or not len(rows):
        return none
    even = _evenly(train)
    table, new = even(train), even(rows)
    # copies of a row, which a tree cannot part, are one node
    code = (table * np.random.default_rng(0).standard_normal(table.shape[1])).sum(1)
    _, first, label, counts = np.unique(
        code, return_index=True, return_inverse=True, return_counts=True
    )
    tree = KDTree(table[first], balanced_tree=False, compact_nodes=False)
    apart = tree.query(new, p=np.inf, distance_upper_bound=2.0)[0]
    for radius in (1.0, EXACT):  # chance meets the smaller one still less often
        found = apart <= radius
        if not found.any():
            return none
        if _by_chance(int(found.sum()), len(rows), radius, table, tree, counts[label]) <= CHANCE:
            return found
    aligned = len(rows) <= len(train) and bool((np.abs(new - table[: len(rows)]) <= 1).all())
    return apart <= 1 if aligned and _surprise(label[: len(rows)]) > SURPRISE else none


def _evenly(train: Table) -> Callable[[Table], Table]:
    """A scale for each column, on which rounding is 1 everywhere: du = dx / (1e-5 sd + eps |x|)."""
    low, high = np.quantile(train, [0.25, 0.75], axis=0)
    sd = train.std(0)
    spread = np.where(high > low, np.minimum(sd, HEAVY * (high - low)), sd)
    step = np.log(np.maximum(OF_SD * spread, 1e-290))

    def even(X: Table) -> Table:
        size = np.log(ROUNDING) + np.log(np.maximum(np.abs(X), 1e-300))
        return np.sign(X) * np.logaddexp(0.0, size - step) / ROUNDING

    return even


def _by_chance(
    matches: int, m: int, radius: float, table: Table, tree: KDTree, copies: np.ndarray
) -> float:
    """The probability that so many or more of m fresh rows match, from how often the rows of ``table`` match one another."""
    n, k = table.shape
    size = min(n, LARGEST_SAMPLE, max(30, int((2 * SAMPLE_BUDGET / k) ** 0.5)))
    if size < 3:
        return 0.0
    some = np.random.default_rng(0).permutation(n)[:size]
    second = tree.query(table[some], k=2, p=np.inf, distance_upper_bound=2.0)[0][:, 1]
    near = (copies[some] <= 1) & (second <= radius)
    # copies are known of all rows: where nothing else is alike, a sample would miss a few in a thousand
    among = copies[some] if near.any() else copies
    alike, counted_rows = int((among > 1).sum() + near.sum()), len(among)
    if alike == counted_rows:
        return 1.0
    # rows that are alike come two at a time: half as many are independent
    counted = (
        0.0
        if alike == 0
        else float(stats.betabinom.sf(matches - 1, m, alike / 2, (counted_rows - alike) / 2))
    )
    each = min(1.0, n * _same_pair(table[some] / radius))
    return max(counted, float(stats.binom.sf(matches - 1, m, each)))


def _same_pair(sample: Table) -> float:
    """The probability that two rows are the same: that they are near in all columns, scaled down column by column.

    Near is the distance of the nearest pairs, within which columns are taken as independent. A column whose numbers repeat is scaled
    by how often they do, one whose numbers do not in proportion.
    """
    gaps = pdist(sample, "chebyshev")
    few = min(NEAR, len(gaps))
    radius = max(float(np.partition(gaps, few - 1)[few - 1]), 1.0)
    chance = float((gaps <= radius).mean())
    for column in sample.T:
        gaps = pdist(column[:, None], "chebyshev")
        smallest = float(np.partition(gaps, few - 1)[few - 1])
        same = max(float((gaps <= 1).mean()), few / len(gaps) / max(smallest, 1.0))
        chance *= min(1.0, same / float((gaps <= radius).mean()))
    return chance


def _surprise(labels: np.ndarray) -> float:
    """-log of the probability of this sequence, from the shares of its own transitions, in nats."""
    before, after = labels[:-1], labels[1:]
    _, pair, together = np.unique(
        np.stack([before, after], 1), axis=0, return_inverse=True, return_counts=True
    )
    alone = np.bincount(before)
    return float(-np.log(together[np.ravel(pair)] / alone[before]).sum())
