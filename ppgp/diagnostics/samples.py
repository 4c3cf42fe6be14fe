"""The scalars of a posterior side by side, with their Monte Carlo errors, and directions in which two posteriors are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from ..numerics.libraries import unchanged
from ..posterior import convergence
from ..posterior.posterior import Posterior

RANDOM = 20  # directions drawn at random, the same in every run
MOST = 500  # coordinates in which directions are learnt: beyond, as many random projections of them
LEADING = 3  # scalars that the name of a direction mentions


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws [chain, draw, scalar], those of an angle as its cosine and sine; ``independent``: not from Markov chains."""

    names: list[str]
    values: np.ndarray
    independent: bool

    @classmethod
    def of(cls, posterior: Posterior) -> Sample:
        names, columns = zip(*convergence.scalars(convergence.plane(posterior)), strict=True)
        return cls(list(names), np.stack(columns, -1), not posterior.mcmc)

    @property
    def draws(self) -> int:
        return self.values.shape[0] * self.values.shape[1]

    @property
    def point(self) -> bool:
        return self.draws == 1

    @property
    def short(self) -> bool:
        """Whether its chains are too short for any figure."""
        return not self.independent and self.values.shape[1] < convergence.FEWEST

    @cached_property
    def mean(self) -> np.ndarray:
        return self.values.mean((0, 1))

    @cached_property
    def sd(self) -> np.ndarray:
        return np.zeros(len(self.names)) if self.point else self.values.std((0, 1), ddof=1)

    def _size(self, quantity: str) -> np.ndarray:
        if self.independent:
            return np.full(len(self.names), float(self.draws))
        return convergence.ess_of_each(self.values, quantity)

    @cached_property
    def size(self) -> np.ndarray:
        """Effective numbers of draws for shares of draws: the smallest of bulk, median and tails."""
        return self._size("shares")

    @cached_property
    def mean_error(self) -> np.ndarray:
        return self.sd / np.sqrt(self._size("mean"))

    @cached_property
    def _sd_size(self) -> np.ndarray:
        return self._size("sd")

    @cached_property
    def kurtosis(self) -> np.ndarray:
        """3 for a normal law; that of a scalar which never moves is 1."""
        spread = np.where(self.sd > 0, self.sd, 1.0)
        return np.where(self.sd > 0, (((self.values - self.mean) / spread) ** 4).mean((0, 1)), 1.0)

    @cached_property
    def sd_error(self) -> np.ndarray:
        return self._error_of_sd(self.sd, self.kurtosis)

    def sd_error_if(self, reference: Sample) -> np.ndarray:
        """The larger of its own and of what it were if its law is the reference's: few draws may show nothing of heavy tails."""
        return np.maximum(self.sd_error, self._error_of_sd(reference.sd, reference.kurtosis))

    def _error_of_sd(self, sd: np.ndarray, kurtosis: np.ndarray) -> np.ndarray:
        return sd * np.sqrt(np.maximum(kurtosis - 1, 0.0) / (4 * self._sd_size))

    @cached_property
    def in_order(self) -> np.ndarray:
        """[draws, scalar], each column sorted."""
        return np.sort(self.values.reshape(self.draws, -1), axis=0)

    def among(self, names: Sequence[str]) -> Sample:
        """The scalars of these names, in this order."""
        where = {name: j for j, name in enumerate(self.names)}
        return Sample(
            list(names), self.values[..., [where[name] for name in names]], self.independent
        )

    def along(self, directions: np.ndarray, names: Sequence[str]) -> Sample:
        """The scalars x @ directions [scalar, k]."""
        return Sample(list(names), self.values @ directions, self.independent)

    def half(self, second: bool) -> Sample:
        """The first or the second half of the draws of each chain."""
        middle = self.values.shape[1] // 2
        part = self.values[:, middle:] if second else self.values[:, :middle]
        return Sample(self.names, part, self.independent)


def projected(sample: Sample, reference: Sample) -> list[tuple[Sample, Sample]]:
    """Both in directions that no scalar shows: some drawn at random, and the two in which sds differ most.

    The latter are learnt on one half of the draws and seen on the other, so that they raise no false alarm by being chosen.
    ``reference``: every scalar of it varies.
    """
    scalars = len(reference.names)
    if scalars < 2:
        return []
    random, names = random_directions(reference.sd)
    pairs = [(sample.along(random, names), reference.along(random, names))]
    if min(sample.values.shape[1], reference.values.shape[1]) >= 2 * convergence.FEWEST:
        learnt, names = _extreme(sample.half(False), reference.half(False), reference.sd)
        pairs.append(
            (sample.half(True).along(learnt, names), reference.half(True).along(learnt, names))
        )
    return pairs


def random_directions(scale: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Directions [scalar, RANDOM] of the scalars in units of ``scale``, the same in every run, and their names."""
    e = np.random.default_rng(0).normal(size=(len(scale), RANDOM))
    return e / math.sqrt(len(scale)) / scale[:, None], [
        f"projection {k + 1} of {RANDOM} at random" for k in range(RANDOM)
    ]


def _extreme(sample: Sample, reference: Sample, scale: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The directions [scalar, 2] in which the ratio of sds is smallest and largest, and their names."""
    with unchanged():
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
    names = []
    for which, weights in zip(
        ("narrowest", "widest"), (directions * scale[:, None]).T, strict=True
    ):
        leading = np.argsort(-np.abs(weights))[:LEADING]
        names.append(
            f"the direction of {which} spread (mostly {', '.join(reference.names[j] for j in leading)})"
        )
    return directions, names
