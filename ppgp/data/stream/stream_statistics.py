"""What one pass over a stream of rows finds out: means, standard deviations, labels, constants.

Means and squared deviations grow chunk by chunk. Chan, Golub & LeVeque (1983): the moments of two
sets of rows give those of their union, without the cancellation of a sum of squares minus a squared
sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...errors import DataError, listed
from ...runtime.team import ALONE, Team
from ..entries.magnitudes import ULPS, Spread
from ..files.parquet_files import Piece
from ..files.parquet_rows import ParquetRows
from ..targets import encode

__all__ = ["RunningMoments", "Statistics", "statistics_of"]

MOST_LABELS = 10_000  # of which a target may hold different ones


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


@dataclass(frozen=True, eq=False)
class Statistics:
    """The statistics of all rows of a stream, in float64.

    Attributes:
        n: The number of rows.
        names: The d names of the inputs, followed by that of the target.
        moments: The moments of the inputs and of the target; of its codes, if it holds labels.
        classes: The labels of the target in sorted order; None: it holds numbers.
        eps: The rounding unit of the dtype of the stream.
    """

    n: int
    names: tuple[str, ...]
    moments: RunningMoments
    classes: tuple[Any, ...] | None
    eps: float

    @property
    def means(self) -> np.ndarray:
        """The means of the inputs, [d]."""
        return self.moments.mean[:-1]

    @property
    def sds(self) -> np.ndarray:
        """The standard deviations of the inputs, [d], with n as divisor."""
        return self.moments.sd[:-1]

    @property
    def y_mean(self) -> float:
        """The mean of the target."""
        return float(self.moments.mean[-1])

    @property
    def y_sd(self) -> float:
        """The standard deviation of the target."""
        return float(self.moments.sd[-1])

    @property
    def constant(self) -> tuple[str, ...]:
        """The names of the columns, the target included, that hold one number up to rounding."""
        return tuple(np.array(self.names)[self._constant].tolist())

    @property
    def _constant(self) -> np.ndarray:
        """Whether each column is constant, the target last."""
        low, high = self.moments.low, self.moments.high
        largest = np.maximum(np.abs(low), np.abs(high))
        power = np.where(largest == 0, 0.0, np.ldexp(1.0, np.frexp(largest)[1] - 1))
        return high - low <= ULPS * self.eps * power

    def spreads(self, dtype: torch.dtype) -> tuple[Spread, Spread]:
        """Return the statistics of the inputs [d] and of the target [] as tensors of a dtype."""
        mean, sd = (torch.from_numpy(v).to(dtype) for v in (self.moments.mean, self.moments.sd))
        constant = torch.from_numpy(self._constant)
        return Spread(mean[:-1], sd[:-1], constant[:-1]), Spread(mean[-1], sd[-1], constant[-1])


def statistics_of(
    rows: ParquetRows, pieces: Sequence[Piece], kind: str, dtype: torch.dtype, team: Team = ALONE
) -> Statistics:
    """Go once over the rows of pieces, one row group at a time, and return their statistics.

    In a team they are the statistics of the rows of all ranks.

    Args:
        rows: The columns.
        pieces: Where the rows are, at least one.
        kind: What the target holds, "text" or "booleans"; anything else: numbers.
        dtype: The dtype of the stream.
        team: The processes that have other pieces.

    Raises:
        DataError: If a value is missing or not finite, a target of text has too many labels, or
            a column is so large that its squares overflow.
    """
    names = (*rows.inputs, rows.target)
    with team.all_or_none():
        own = _one_pass(rows, pieces, kind)
    n, moments, by_label = _of_all_ranks(own, team)
    with team.all_or_none():
        _check_number(by_label, rows.target)
        too_large = [name for name, s in zip(names, moments.sd, strict=True) if not np.isfinite(s)]
        if too_large:
            got = f"{listed(too_large, 'column')} with larger numbers"
            raise DataError("numbers whose squares are finite", got, "change their units")
    classes: tuple[Any, ...] | None = None
    if kind == "booleans":
        classes = (False, True)
    if kind == "text":
        classes, moments = _sorted_labels(by_label, moments)
    return Statistics(n, names, moments, classes, torch.finfo(dtype).eps)


Sums = tuple[int, RunningMoments, dict[str, int]]
"""The number of rows, their moments, and the number of rows of each label of text."""


def _one_pass(rows: ParquetRows, pieces: Sequence[Piece], kind: str) -> Sums:
    """Go over the rows of pieces; the codes of labels are left 0 in the moments."""
    columns_of_moments = len(rows.inputs) + 1
    by_label: dict[str, int] = {}
    moments, n = RunningMoments.none(columns_of_moments), 0
    reader = replace(rows, classes=()) if kind == "text" else rows
    for columns in reader.read(pieces):
        if kind == "text":
            columns[len(rows.inputs)] = _numbered(columns[len(rows.inputs)], by_label, rows.target)
        values = np.array(columns[:columns_of_moments], dtype=float)
        weights = columns[-1].astype(float) if rows.weights else None
        n += values.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            moments = moments.joined(RunningMoments.of(values, weights))
    return n, moments, by_label


def _of_all_ranks(own: Sums, team: Team) -> Sums:
    """Return the sums over the rows of all ranks, joined in their order on each of them."""
    if team.alone:
        return own
    n, moments, by_label = own
    numbers = {name: np.asarray(value).tolist() for name, value in vars(moments).items()}
    said = team.gathered({"n": n, "moments": numbers, "labels": by_label})
    labels: dict[str, int] = {}
    moments = RunningMoments.none(len(moments.shift))
    for each in said:
        parts = {name: np.array(value) for name, value in each["moments"].items()}
        part = RunningMoments(**{**parts, "weight": each["moments"]["weight"]})
        with np.errstate(over="ignore", invalid="ignore"):
            moments = moments.joined(part)
        for label, count in each["labels"].items():
            labels[label] = labels.get(label, 0) + count
    return sum(each["n"] for each in said), moments, labels


def _check_number(by_label: dict[str, int], name: str) -> None:
    """Raise DataError for more labels than a target may hold."""
    if len(by_label) > MOST_LABELS:
        do = "pass a column of numbers, or of fewer labels, as target"
        raise DataError(f"at most {MOST_LABELS:,} labels in {name}", "more", do)


def _numbered(labels: Any, by_label: dict[str, int], name: str) -> np.ndarray:
    """Return zeros [k] in place of labels, after counting the labels in ``by_label``."""
    for one in labels.value_counts():
        label, count = one["values"].as_py(), one["counts"].as_py()
        by_label[label] = by_label.get(label, 0) + count
    _check_number(by_label, name)
    return np.zeros(len(labels))


def _sorted_labels(
    by_label: dict[str, int], moments: RunningMoments
) -> tuple[tuple[Any, ...] | None, RunningMoments]:
    """Return the labels in sorted order, and the moments with those of their codes."""
    _, classes = encode(np.array(sorted(by_label), dtype=object), None)
    codes = np.arange(len(classes or ()), dtype=float)
    counts = np.array([by_label[label] for label in classes or ()], dtype=float)
    own = RunningMoments.of(codes[None], counts)
    parts = {
        field: np.append(getattr(moments, field)[:-1], getattr(own, field))
        for field in ("shift", "offset", "squares", "low", "high")
    }
    return classes, replace(moments, **parts)
