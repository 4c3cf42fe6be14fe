"""Conditioning a Gaussian process of one column on its rows, draw by draw."""

from __future__ import annotations

from collections.abc import Iterator

import pyro.distributions as dist
import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..errors import DataError, listed
from ..kernels import Kernel
from ..kernels.constant import constants
from ..kernels.state_space import StateSpace, require, summed
from ..numerics.least_variance import at_least_rounding
from ..numerics.result_cache import ResultCache
from ..priors import PriorLike, under
from ..target.capabilities import Updates
from .base import Model
from .known_noise import with_known
from .memory_checks import check_memory_of_predictions
from .sites import Theta, number_of_draws, split_params
from .state_space_predictions import At, Smoothed, after, at, joint, onward, smoothed
from .state_space_regressors import columns_of, weight_variances
from .state_space_rows import Steps, steps_of

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of one chunk of draws
FEW = 2000  # new rows that are filtered one by one


class StateSpaceConditioning(Model, Updates):
    """The states of a kernel at the training rows and elsewhere."""

    kernel: Kernel
    regressors: PriorLike | None

    def _width(self, d: int) -> int:
        """The number of states."""
        return len(self._observation(torch.zeros(1, d, dtype=torch.float64)))

    def _noise(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        return with_known(self.value(theta, "noise", X)[..., None], noise_sd)

    def _space(self, theta: Theta, X: Tensor) -> StateSpace:
        space = require(self.kernel).state_space(under("kernel", theta), X)
        if X.shape[-1] == 1:
            return space
        return summed([space, constants(weight_variances(self.regressors, X))])

    def _steps(
        self, theta: Theta, X: Tensor, noise_sd: Tensor | None, backwards: bool = False
    ) -> Steps:
        noise = self._noise(theta, X, noise_sd)
        space, t = self._in_direction(theta, X, backwards)
        return steps_of(space, t, noise, columns_of(X))

    def _in_direction(self, theta: Theta, X: Tensor, backwards: bool) -> tuple[StateSpace, Tensor]:
        """Return the process and the times at rows of X, or those of f(-t)."""
        space, t = self._space(theta, X), X[:, 0]
        return (space.backwards(), -t) if backwards else (space, t)

    def _chunks(self, theta: Theta, train: Dataset, m: int) -> Iterator[tuple[slice, Theta]]:
        """Yield the slices of the draws whose matrices fit into ``MEMORY_BUDGET``, and theta."""
        drawn, params = split_params(self.sites_at(train.d), theta)
        count = number_of_draws(drawn)
        numbers = 12 * self._width(train.d) ** 2 * (train.n + m)
        size = max(1, MEMORY_BUDGET // (train.X.element_size() * numbers))
        for i in range(0, count, size):
            chunk = slice(i, min(i + size, count))
            yield chunk, {**params, **{name: value[chunk] for name, value in drawn.items()}}

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
            steps = self._steps(part, train.X, train.noise_sd, backwards)
            return smoothed(steps, train.y - self.value(part, "mean", train.X)[..., None])

        kept = kept or ResultCache(limit=0)
        return Smoothed(*kept.get((chunk.start, chunk.stop, backwards), compute, part))

    def _states(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Iterator[tuple[slice, Theta, At]]:
        """Yield the states at X under each chunk of draws.

        Where the rows before a time say little, the process runs backwards from the last row.
        """
        H = self._observation(X)
        for chunk, part in self._chunks(theta, train, len(X)):
            found = self._smoothed(part, train, chunk, kept)
            here = at(found, *self._in_direction(part, X, False))
            lost = here.lost(H)
            if bool(lost.any()):
                found = self._smoothed(part, train, chunk, kept, backwards=True)
                there = at(found, *self._in_direction(part, X, True))
                here = here.but(there, lost & ~there.lost(H))
            yield chunk, part, here

    def _observation(self, X: Tensor) -> Tensor:
        """Return the weights H with f = H'x at rows of X, [s, m]."""
        values = {name: X.new_ones(s.shape) for name, s in self.kernel.sites(1).items()}
        H = torch.tensor(require(self.kernel).state_space(values, X).observation).to(X)
        return torch.cat([H[:, None].expand(-1, len(X)), X[:, 1:].mT])

    def _prior(self, theta: Theta, X: Tensor, other: Tensor | None = None) -> Tensor:
        """Return the prior covariance of f at rows of X and of ``other``, or of X."""
        K = self.kernel(under("kernel", theta), X[:, :1], None if other is None else other[:, :1])
        if X.shape[-1] == 1:
            return K
        second = X if other is None else other
        return K + (X[:, 1:] * weight_variances(self.regressors, X)) @ second[:, 1:].mT

    def _prior_variances(self, theta: Theta, X: Tensor) -> Tensor:
        variances = self.kernel.diag(under("kernel", theta), X[:, :1])
        if X.shape[-1] == 1:
            return variances
        return variances + X[:, 1:].square() @ weight_variances(self.regressors, X)

    def _marginal(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance [draw, m] of f at X."""
        drawn, _ = split_params(self.sites_at(train.d), theta)
        check_memory_of_predictions(number_of_draws(drawn), len(X), X)
        H, means, variances = self._observation(X), [], []
        states = self._states(theta, X, train, kept)
        if kept is not None and len(X) and bool(X[:, 0].min() >= train.X[:, 0].max()):
            states = self._states_after(theta, X, train, kept)
        for chunk, part, found in states:
            mean, variance = found.of(H)
            shape = (chunk.stop - chunk.start, len(X))
            means.append((mean + self.value(part, "mean", X)[..., None]).expand(shape))
            prior = self._prior_variances(part, X)
            variances.append(at_least_rounding(variance, prior).expand(shape))
        return torch.cat(means), torch.cat(variances)

    def _joint(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return mean [draw, m] and covariance [draw, m, m] of f at X."""
        drawn, _ = split_params(self.sites_at(train.d), theta)
        check_memory_of_predictions(number_of_draws(drawn), len(X), X, joint=True)
        H, means, covariances = self._observation(X), [], []
        for chunk, part in self._chunks(theta, train, len(X)):
            found = self._smoothed(part, train, chunk, kept)
            here = self._in_direction(part, X, False)
            mean, covariance = joint(found, *here, H)
            lost = at(found, *here).lost(H)
            if bool(lost.any()):  # as in _states
                found = self._smoothed(part, train, chunk, kept, backwards=True)
                there = self._in_direction(part, X, True)
                other, of_pairs = joint(found, *there, H)
                worse = at(found, *there).lost(H)
                mean = torch.where(lost & ~worse, other, mean)
                either = (lost[:, None] | lost) & ~(worse[:, None] | worse)
                covariance = torch.where(either, of_pairs, covariance)
            k, m = chunk.stop - chunk.start, len(X)
            means.append((mean + self.value(part, "mean", X)[..., None]).expand(k, m))
            covariances.append(covariance.expand(k, m, m))
        return torch.cat(means), torch.cat(covariances)

    # -- further rows ---------------------------------------------------------------

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
            space = self._space(part, X)
            yield chunk, part, after(m[..., chunk], P[..., chunk], time, space, X[:, 0])

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        X, y = new.X[old.n :], new.y[old.n :]
        sd = None if new.noise_sd is None else new.noise_sd[old.n :]
        if not 0 < len(X) <= FEW or bool(X[:, 0].min() < old.X[:, 0].max()):
            return
        time, m, P = self._end(theta, old, kept)
        residual = y - self.value(theta, "mean", X)[..., None]
        noise = self._noise(theta, X, sd)
        start = (m, P, time, self._space(theta, X))
        end = onward(*start, X[:, 0], residual, noise, columns_of(X)).end()
        into.get("end", lambda: end, theta)

    def one_step_ahead(
        self, theta: Theta, train: Dataset, new: Dataset, kept: ResultCache
    ) -> dist.Normal:
        X, last = new.X, train.X[:, 0].max()
        early = (X[:, 0] < last).nonzero()[:, 0].tolist()
        if early:
            do = "pass later rows, or use loo or predict for the others"
            got = f"an earlier time in {listed(early, 'row')}"
            raise DataError("times that are not before the last training row", got, do)
        time, m, P = self._end(theta, train, kept)
        means, variances = [], []
        for chunk, part in self._chunks(theta, train, len(X)):
            noise = self._noise(part, X, new.noise_sd)
            level = self.value(part, "mean", X)[..., None]
            start = (m[..., chunk], P[..., chunk], time, self._space(part, X))
            found = onward(*start, X[:, 0], new.y - level, noise, columns_of(X))
            mean, variance = found.moments()
            means.append(mean + level)
            variances.append(variance + noise)
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())
