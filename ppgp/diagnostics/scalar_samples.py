"""Scalars of a posterior with their Monte Carlo errors, and other directions to compare in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from ..posterior import convergence
from ..posterior.axes import scalar_names
from ..posterior.posterior import Posterior
from ..runtime.libraries import settings_unchanged

RANDOM = 20  # directions drawn at random, the same in every run
MOST = 500  # coordinates for learnt directions; of more scalars, so many random projections
LEADING = 3  # scalars that the name of a direction mentions


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws of all scalars of a posterior; an angle is replaced by its cosine and sine.

    Attributes:
        names: Of the scalars.
        values: [chain, draw, scalar].
        independent: Whether the draws are not from Markov chains.
    """

    names: list[str]
    values: np.ndarray
    independent: bool

    @classmethod
    def of(cls, posterior: Posterior) -> Sample:
        """Return the sample of a posterior."""
        draws = convergence.with_angles_as_points(posterior)
        names, columns = zip(*convergence.scalars(draws, posterior), strict=True)
        return cls(list(names), np.stack(columns, -1), not posterior.mcmc)

    def named_by(self, posterior: Posterior, other: Posterior) -> Sample:
        """Return the sample of ``posterior`` with the names that ``other`` gives the same sites.

        Tables with and without names of columns give one scalar two names.
        """
        names = scalar_names(convergence.with_angles_as_points(posterior), other.model, other.data)
        return replace(self, names=[name for of_site in names.values() for name in of_site])

    @property
    def draws(self) -> int:
        return self.values.shape[0] * self.values.shape[1]

    @property
    def point(self) -> bool:
        return self.draws == 1

    @property
    def short(self) -> bool:
        """Whether the chains are too short for any comparison."""
        return not self.independent and self.values.shape[1] < convergence.FEWEST

    @cached_property
    def mean(self) -> np.ndarray:
        return self.values.mean((0, 1))

    @cached_property
    def sd(self) -> np.ndarray:
        if self.point:
            return np.zeros(len(self.names))
        return self.values.std((0, 1), ddof=1)

    def _size(self, quantity: str) -> np.ndarray:
        if self.independent:
            return np.full(len(self.names), float(self.draws))
        return convergence.ess_of_each(self.values, quantity)

    @cached_property
    def size(self) -> np.ndarray:
        """The effective numbers of draws for shares: the least of bulk, median and tails."""
        return self._size("shares")

    @cached_property
    def mean_error(self) -> np.ndarray:
        return self.sd / np.sqrt(self._size("mean"))

    @cached_property
    def _sd_size(self) -> np.ndarray:
        return self._size("sd")

    @cached_property
    def kurtosis(self) -> np.ndarray:
        """The kurtosis of each scalar: 3 for a normal distribution, 1 for a constant scalar."""
        spread = np.where(self.sd > 0, self.sd, 1.0)
        return np.where(self.sd > 0, (((self.values - self.mean) / spread) ** 4).mean((0, 1)), 1.0)

    @cached_property
    def sd_error(self) -> np.ndarray:
        return self._error_of_sd(self.sd, self.kurtosis)

    def sd_error_if(self, reference: Sample) -> np.ndarray:
        """Return the larger of its own error of the sd and the error under the reference.

        The latter assumes the distribution of the reference: few draws may not show heavy tails.
        """
        return np.maximum(self.sd_error, self._error_of_sd(reference.sd, reference.kurtosis))

    def _error_of_sd(self, sd: np.ndarray, kurtosis: np.ndarray) -> np.ndarray:
        return sd * np.sqrt(np.maximum(kurtosis - 1, 0.0) / (4 * self._sd_size))

    @cached_property
    def in_order(self) -> np.ndarray:
        """The draws of all chains [draws, scalar], each column sorted."""
        return np.sort(self.values.reshape(self.draws, -1), axis=0)

    def among(self, names: Sequence[str]) -> Sample:
        """Return the scalars of these names, in this order."""
        where = {name: j for j, name in enumerate(self.names)}
        columns = [where[name] for name in names]
        return Sample(list(names), self.values[..., columns], self.independent)

    def along(self, directions: np.ndarray, names: Sequence[str]) -> Sample:
        """Return the k scalars x @ directions, with directions [scalar, k]."""
        return Sample(list(names), self.values @ directions, self.independent)

    def half(self, second: bool) -> Sample:
        """Return the first or the second half of the draws of each chain."""
        middle = self.values.shape[1] // 2
        halves = np.split(self.values, [middle], axis=1)
        return Sample(self.names, halves[int(second)], self.independent)


def projected(sample: Sample, reference: Sample) -> list[tuple[Sample, Sample]]:
    """Return both samples in directions other than the scalars.

    Some directions are random, and two are those in which sds differ most. The latter are learnt on
    one half of the draws and evaluated on the other, so that the choice raises no false alarm.

    Args:
        sample: Of the posterior that is judged.
        reference: Of the reference; every scalar of it varies.
    """
    scalars = len(reference.names)
    if scalars < 2:
        return []
    random, names = random_directions(reference.sd)
    pairs = [(sample.along(random, names), reference.along(random, names))]
    if min(sample.values.shape[1], reference.values.shape[1]) >= 2 * convergence.FEWEST:
        learnt, names = _extreme(sample.half(False), reference.half(False), reference.sd)
        second = sample.half(True), reference.half(True)
        pairs.append((second[0].along(learnt, names), second[1].along(learnt, names)))
    return pairs


def random_directions(scale: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return random directions [scalar, RANDOM], the same in every run, and their names.

    Args:
        scale: [scalar], the units of the scalars.
    """
    e = np.random.default_rng(0).normal(size=(len(scale), RANDOM))
    names = [f"projection {k + 1} of {RANDOM} at random" for k in range(RANDOM)]
    return e / math.sqrt(len(scale)) / scale[:, None], names


def _extreme(sample: Sample, reference: Sample, scale: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the directions [scalar, 2] with the smallest and largest ratio of sds, and names."""
    with settings_unchanged():
        from sklearn.covariance import ledoit_wolf

    scalars = len(scale)
    basis = np.diag(1 / scale)
    if scalars > MOST:
        basis = basis @ (np.random.default_rng(1).normal(size=(scalars, MOST)) / math.sqrt(scalars))
    ours, theirs = (
        ledoit_wolf(s.values.reshape(s.draws, -1) @ basis)[0] for s in (sample, reference)
    )
    _, vectors = eigh(ours, theirs)
    directions = basis @ vectors[:, [0, -1]]
    weights = directions * scale[:, None]
    names = []
    for j, which in enumerate(("narrowest", "widest")):
        leading = np.argsort(-np.abs(weights[:, j]))[:LEADING]
        mostly = ", ".join(reference.names[i] for i in leading)
        names.append(f"the direction of {which} spread (mostly {mostly})")
    return directions, names
