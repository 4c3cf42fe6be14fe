"""Which rows of a prediction are training rows, to be decided once their y are known.

Rows match if they are equal up to rounding. Matches count only if chance does not explain them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import scipy
import torch
from torch import Tensor

from ..data.dataset import Dataset, Scaler

# numbers are equal if they differ by less than OF_SD standard deviations of their column, plus
# ROUNDING times their size: the rounding of single precision, to it and back
OF_SD = 1e-5
ROUNDING = 4 * float(np.finfo(np.float32).eps)
EXACT = 1e-4  # share of that tolerance: the rounding of double precision, to it and back
# a standard deviation larger than this many interquartile ranges reflects the largest numbers alone
HEAVY = 10.0
CHANCE = 1e-3  # matches with a larger probability under chance are no evidence
SURPRISE = 20.0  # nats of information in the order of rows that makes a repeated order evidence
LARGEST_SAMPLE = 500  # rows used to estimate how often two rows match by chance
SAMPLE_BUDGET = 10_000_000  # numbers in the differences between them
NEAR = 50  # nearest pairs of rows, from which the probability of a match is extrapolated

Table: TypeAlias = np.ndarray


@dataclass(frozen=True, eq=False)
class Provenance:
    """The rows of a prediction and the training rows.

    The same x alone does not make a row a training row: the same pair (x, y) does.

    Attributes:
        trained: () -> the training inputs [n, k] and targets [n], in the units of the data.
        rows: () -> the inputs [m, k] of the prediction.
        index: Which of these rows; None for all.
        others: The same rows compared with other tables that influenced the fit.
    """

    trained: Callable[[], tuple[Table, Table]]
    rows: Callable[[], Table]
    index: Tensor | None = None
    others: tuple[Provenance, ...] = ()
    _last: dict[bytes, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, index: Tensor) -> Provenance:
        others = tuple(other[index] for other in self.others)
        if self.index is not None:
            index = self.index[index]
        return replace(self, index=index, others=others)

    def compared_with(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows are training rows with this y, and which equal one by chance or not.

        Pairs (x, y) are compared up to rounding; matches that chance explains do not count as
        training rows.

        Args:
            y: The targets [m] of the rows.

        Returns:
            Two masks, [m] bool.
        """
        target = numbers(y)
        key = target.tobytes()
        if key not in self._last:  # several scores are calibrated on the same rows
            X, known = self.trained()
            rows = self.rows()
            if self.index is not None:
                rows = rows[self.index.cpu().numpy()]
            before, now = np.column_stack([X, known]), np.column_stack([rows, target])
            repeated, alike = map(torch.from_numpy, compared(before, now))
            for other in self.others:
                also, also_alike = other.compared_with(y)
                repeated, alike = repeated | also, alike | also_alike
            self._last.clear()
            self._last[key] = repeated, alike
        return self._last[key]


def of_table(X: Tensor, train: Dataset, scaler: Scaler, others: Sequence[Any] = ()) -> Provenance:
    """Return the provenance of rows of a table.

    Args:
        X: The rows [m, d], on the scale of the training table.
        train: The training table.
        scaler: The standardisation of the training table.
        others: Other tables that influenced the fit, in the units of the data.
    """

    def trained() -> tuple[Table, Table]:
        return numbers(scaler.inputs_back(train.X)), numbers(scaler.targets_back(train.y))

    def rows() -> Table:
        return numbers(scaler.inputs_back(X))

    def compared_with(other: Dataset) -> Provenance:
        there, here = common_columns(other, train)

        def trained_there() -> tuple[Table, Table]:
            return numbers(other.X)[:, there], numbers(other.y)

        return Provenance(trained_there, lambda: rows()[:, here])

    tables = tuple(compared_with(other) for other in others if other.is_table)
    return Provenance(trained, rows, others=tables)


def common_columns(one: Dataset, other: Dataset) -> tuple[list[int], list[int]]:
    """Return the positions of the columns that two tables share, in the one and in the other.

    Columns are matched by name if both tables have names. Otherwise all columns match if the
    tables have as many, and none if not; rows are then compared by y alone.
    """
    if one.feature_names and other.feature_names:
        both = [name for name in one.feature_names if name in other.feature_names]
        first = [one.feature_names.index(name) for name in both]
        return first, [other.feature_names.index(name) for name in both]
    if one.d != other.d:
        return [], []
    return list(range(one.d)), list(range(one.d))


def numbers(values: Tensor) -> Table:
    """Return a tensor as a NumPy array in float64."""
    return values.detach().cpu().double().numpy()


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
    if np.isnan(train).any() or np.isnan(rows).any():
        train, rows = _without_missing(train, rows)
    step = _rounding_step(train)
    table, new = _in_roundings(train, step), _in_roundings(rows, step)
    # a tree cannot separate copies of a row, so that they form one node
    code = (table * np.random.default_rng(0).standard_normal(table.shape[1])).sum(1)
    _, first, label, counts = np.unique(
        code, return_index=True, return_inverse=True, return_counts=True
    )
    tree = scipy.spatial.KDTree(table[first], balanced_tree=False, compact_nodes=False)
    distance = tree.query(new, p=np.inf, distance_upper_bound=2.0)[0]
    copies = counts[label]
    alike = distance <= 1
    for radius in (1.0, EXACT):  # chance matches are rarer at the smaller radius
        match = distance <= radius
        if not match.any():
            return none, alike
        number = int(match.sum())
        if _probability_by_chance(number, len(rows), radius, table, tree, copies) <= CHANCE:
            return match, alike
    aligned = len(rows) <= len(train) and bool((np.abs(new - table[: len(rows)]) <= 1).all())
    if aligned and _information(label[: len(rows)]) > SURPRISE:
        return alike, alike
    return none, alike


def _without_missing(train: Table, rows: Table) -> tuple[Table, Table]:
    """Return both tables with a number below all others of its column in place of NaN.

    A missing value then equals another, and no number.
    """
    both = np.concatenate([train, rows])
    both = np.where(np.isnan(both).all(0), 0.0, both)
    low, high = np.nanmin(both, axis=0), np.nanmax(both, axis=0)
    below = low - (high - low) - 1.0
    filled = np.where(np.isnan(both), below, both)
    return filled[: len(train)], filled[len(train) :]


def _rounding_step(train: Table) -> np.ndarray:
    """Return the log of the step in each column [k] that counts as a rounding error at 0."""
    low, high = np.quantile(train, [0.25, 0.75], axis=0)
    sd = train.std(0)
    spread = np.where(high > low, np.minimum(sd, HEAVY * (high - low)), sd)
    return np.log(np.maximum(OF_SD * spread, 1e-290))


def _in_roundings(X: Table, step: np.ndarray) -> Table:
    """Return columns transformed so that rounding errors are 1 everywhere.

    It satisfies du = dx / (1e-5 sd + eps |x|).
    """
    size = np.log(ROUNDING) + np.log(np.maximum(np.abs(X), 1e-300))
    return np.sign(X) * np.logaddexp(0.0, size - step) / ROUNDING


def _information(labels: np.ndarray) -> float:
    """Return minus the log probability of a sequence under its own transitions, in nats."""
    before, after = labels[:-1], labels[1:]
    _, pair, together = np.unique(
        np.stack([before, after], 1), axis=0, return_inverse=True, return_counts=True
    )
    alone = np.bincount(before)
    return float(-np.log(together[np.ravel(pair)] / alone[before]).sum())


def _probability_by_chance(
    matches: int,
    m: int,
    radius: float,
    table: np.ndarray,
    tree: scipy.spatial.KDTree,
    copies: np.ndarray,
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
        counted = float(scipy.stats.betabinom.sf(matches - 1, m, alike / 2, (total - alike) / 2))
    per_row = min(1.0, n * _match_probability(table[some] / radius))
    return max(counted, float(scipy.stats.binom.sf(matches - 1, m, per_row)))


def _match_probability(sample: np.ndarray) -> float:
    """Return the probability that two rows match, extrapolated from the nearest pairs of a sample.

    It starts from the probability that two rows are near each other in all columns, where near is
    the distance of the nearest pairs. Within this distance columns are taken as independent. For
    each column it is then scaled down: by how often numbers repeat if they do, and else in
    proportion to the distance.
    """
    gaps = scipy.spatial.distance.pdist(sample, "chebyshev")
    few = min(NEAR, len(gaps))
    radius = max(float(np.partition(gaps, few - 1)[few - 1]), 1.0)
    chance = float((gaps <= radius).mean())
    for column in sample.T:
        gaps = scipy.spatial.distance.pdist(column[:, None], "chebyshev")
        smallest = float(np.partition(gaps, few - 1)[few - 1])
        same = max(float((gaps <= 1).mean()), few / len(gaps) / max(smallest, 1.0))
        chance *= min(1.0, same / float((gaps <= radius).mean()))
    return chance
