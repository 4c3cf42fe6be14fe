"""How probable it is that rows of two tables match by chance."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.spatial import KDTree
from scipy.spatial.distance import pdist

LARGEST_SAMPLE = 500  # rows used to estimate how often two rows match by chance
SAMPLE_BUDGET = 10_000_000  # numbers in the differences between them
NEAR = 50  # nearest pairs of rows, from which the probability of a match is extrapolated


def probability_by_chance(
    matches: int, m: int, radius: float, table: np.ndarray, tree: KDTree, copies: np.ndarray
) -> float:
    """Return the probability that ``matches`` or more of m fresh rows match by chance.

    It is estimated from how often the training rows match one another.

    Args:
        matches: The number of matches.
        m: The number of rows that were compared.
        radius: The distance within which rows match.
        table: [n, k], the training rows.
        tree: A tree of the different training rows.
        copies: [n], how often each training row occurs.
    """
    n, k = table.shape
    size = min(n, LARGEST_SAMPLE, max(30, int((2 * SAMPLE_BUDGET / k) ** 0.5)))
    if size < 3:
        return 0.0
    some = np.random.default_rng(0).permutation(n)[:size]
    second = tree.query(table[some], k=2, p=np.inf, distance_upper_bound=2.0)[0][:, 1]
    near = (copies[some] <= 1) & (second <= radius)
    # copies are known for all rows; if there are no other matches, a sample of them would be less
    # accurate
    among = copies[some] if near.any() else copies
    alike, total = int((among > 1).sum() + near.sum()), len(among)
    if alike == total:
        return 1.0
    counted = 0.0
    if alike > 0:
        # matching rows come in pairs: half as many are independent
        counted = float(stats.betabinom.sf(matches - 1, m, alike / 2, (total - alike) / 2))
    per_row = min(1.0, n * _match_probability(table[some] / radius))
    return max(counted, float(stats.binom.sf(matches - 1, m, per_row)))


def _match_probability(sample: np.ndarray) -> float:
    """Return the probability that two rows match, extrapolated from the nearest pairs of a sample.

    It starts from the probability that two rows are near each other in all columns, where near is
    the distance of the nearest pairs. Within this distance columns are taken as independent. For
    each column it is then scaled down: by how often numbers repeat if they do, and else in
    proportion to the distance.
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
