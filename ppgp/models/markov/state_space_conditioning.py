"""Conditioning a Gaussian process of one column on its rows, draw by draw."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...numerics.least_variance import at_least_rounding
from ...runtime.result_cache import ResultCache
from ..advice.memory_checks import check_memory_of_predictions
from ..sites import Theta, number_of_draws, split_params
from .state_space_predictions import At, Smoothed, after, at, joint
from .state_space_recipe import StateSpaceRecipe

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of one chunk of draws


class StateSpaceConditioning(StateSpaceRecipe):
    """The states of a kernel at the training rows and elsewhere."""

    def _chunks(self, theta: Theta, train: Dataset, m: int) -> Iterator[tuple[slice, Theta]]:
        """Yield the slices of the draws whose matrices fit into ``MEMORY_BUDGET``, and theta."""
        drawn, params = split_params(self.sites_at(train.d), theta)
        count = number_of_draws(drawn)
        numbers = 12 * self.width(train.d) ** 2 * (train.n + m)
        size = max(1, MEMORY_BUDGET // (train.X.element_size() * numbers))
        for i in range(0, count, size):
            chunk = slice(i, min(i + size, count))
            yield chunk, {**params, **{name: value[chunk] for name, value in drawn.items()}}

    @abstractmethod
    def _conditioned(self, theta: Theta, train: Dataset, backwards: bool) -> Smoothed:
        """Return what the training rows say of the process, or of f(-t)."""

    def _smoothed(
        self,
        part: Theta,
        train: Dataset,
        chunk: slice,
        kept: ResultCache | None,
        backwards: bool = False,
    ) -> Smoothed:
        """Return what the training rows say under a chunk of draws."""

        def compute() -> Smoothed:
            return self._conditioned(part, train, backwards)

        kept = kept or ResultCache(limit=0)
        return Smoothed(*kept.get((chunk.start, chunk.stop, backwards), compute, part))

    def _states(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Iterator[tuple[slice, Theta, At]]:
        """Yield the states at X under each chunk of draws.

        Where the rows before a time say little, the process runs backwards from the last row.
        """
        H = self.observation(X)
        for chunk, part in self._chunks(theta, train, len(X)):
            found = self._smoothed(part, train, chunk, kept)
            here = at(found, *self.in_direction(part, X, False))
            lost = here.lost(H)
            if bool(lost.any()):
                found = self._smoothed(part, train, chunk, kept, backwards=True)
                there = at(found, *self.in_direction(part, X, True))
                here = here.but(there, lost & ~there.lost(H))
            yield chunk, part, here

    def _marginal(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance [draw, m] of f at X."""
        drawn, _ = split_params(self.sites_at(train.d), theta)
        check_memory_of_predictions(number_of_draws(drawn), len(X), X)
        H, means, variances = self.observation(X), [], []
        states = self._states(theta, X, train, kept)
        if kept is not None and len(X) and bool(X[:, 0].min() >= train.X[:, 0].max()):
            states = self._states_after(theta, X, train, kept)
        for chunk, part, found in states:
            mean, variance = found.of(H)
            shape = (chunk.stop - chunk.start, len(X))
            means.append((mean + self.mean_at(part, X)).expand(shape))
            prior = self.prior_variances(part, X)
            variances.append(at_least_rounding(variance, prior).expand(shape))
        return torch.cat(means), torch.cat(variances)

    def _joint(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return mean [draw, m] and covariance [draw, m, m] of f at X."""
        drawn, _ = split_params(self.sites_at(train.d), theta)
        check_memory_of_predictions(number_of_draws(drawn), len(X), X, joint=True)
        H, means, covariances = self.observation(X), [], []
        for chunk, part in self._chunks(theta, train, len(X)):
            found = self._smoothed(part, train, chunk, kept)
            here = self.in_direction(part, X, False)
            mean, covariance = joint(found, *here, H)
            lost = at(found, *here).lost(H)
            if bool(lost.any()):  # as in _states
                found = self._smoothed(part, train, chunk, kept, backwards=True)
                there = self.in_direction(part, X, True)
                other, of_pairs = joint(found, *there, H)
                worse = at(found, *there).lost(H)
                mean = torch.where(lost & ~worse, other, mean)
                either = (lost[:, None] | lost) & ~(worse[:, None] | worse)
                covariance = torch.where(either, of_pairs, covariance)
            k, m = chunk.stop - chunk.start, len(X)
            means.append((mean + self.mean_at(part, X)).expand(k, m))
            covariances.append(covariance.expand(k, m, m))
        return torch.cat(means), torch.cat(covariances)

    def _end(
        self, theta: Theta, train: Dataset, kept: ResultCache
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the time of the last row, and mean and covariance of the state there.

        The time is [1], the mean [s, *batch] and the covariance [s, s, *batch], which begin with
        an axis of the draws where several chunks are needed.
        """

        def compute() -> tuple[Tensor, Tensor, Tensor]:
            ms, Ps = [], []
            last = train.X[:, 0].max()[None]
            for chunk, part in self._chunks(theta, train, 0):
                found = self._smoothed(part, train, chunk, kept)
                k = chunk.stop - chunk.start
                ms.append(found.m[..., -1].reshape(len(found.m), -1).expand(-1, k))
                P = found.P[..., -1]
                Ps.append(P.reshape(*P.shape[:2], -1).expand(-1, -1, k))
            return last, torch.cat(ms, -1), torch.cat(Ps, -1)

        return kept.get("end", compute, theta)

    def _states_after(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache
    ) -> Iterator[tuple[slice, Theta, At]]:
        """Yield the states at times X after the last row, as ``_states`` does."""
        time, m, P = self._end(theta, train, kept)
        for chunk, part in self._chunks(theta, train, len(X)):
            space = self.space(part, X)
            yield chunk, part, after(m[..., chunk], P[..., chunk], time, space, X[:, 0])
