"""Further rows of a Gaussian process of one column: the filter goes on from the last state."""

from __future__ import annotations

import pyro.distributions as dist
import torch
from torch import Tensor

from ...capabilities import Updates
from ...data.dataset import Dataset
from ...errors import DataError, listed
from ...runtime.result_cache import ResultCache
from ..known_noise import with_known
from ..sites import Theta
from .state_space_conditioning import StateSpaceConditioning
from .state_space_predictions import Smoothed, onward, smoothed
from .state_space_regressors import columns_of
from .state_space_rows import Steps

FEW = 2000  # new rows that are filtered one by one


class StateSpaceUpdates(StateSpaceConditioning, Updates):
    """Rows y = f + Gaussian noise, which a filter takes one after the other."""

    def noise_at(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the noise variance of rows, [*b, 1] or [*b, n]; b are the axes of all draws."""
        noise = self.value(theta, "noise", X)[..., None]
        # also where the mean alone is drawn
        draws = torch.broadcast_shapes(noise.shape[:-1], self.axes_of_mean(theta, X.shape[-1]))
        return with_known(noise.expand(*draws, 1), noise_sd)

    def noisy_steps(
        self, theta: Theta, X: Tensor, noise_sd: Tensor | None, backwards: bool = False
    ) -> Steps:
        """Return the process at rows of X with their noise."""
        return self.steps(theta, X, self.noise_at(theta, X, noise_sd), backwards)

    def _conditioned(self, theta: Theta, train: Dataset, backwards: bool) -> Smoothed:
        steps = self.noisy_steps(theta, train.X, train.noise_sd, backwards)
        return smoothed(steps, train.y - self.mean_at(theta, train.X))

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        X, y = new.X[old.n :], new.y[old.n :]
        sd = None if new.noise_sd is None else new.noise_sd[old.n :]
        if not 0 < len(X) <= FEW or bool(X[:, 0].min() < old.X[:, 0].max()):
            return
        time, m, P = self._end(theta, old, kept)
        residual = y - self.mean_at(theta, X)
        noise = self.noise_at(theta, X, sd)
        start = (m, P, time, self.space(theta, X))
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
            noise = self.noise_at(part, X, new.noise_sd)
            level = self.mean_at(part, X)
            start = (m[..., chunk], P[..., chunk], time, self.space(part, X))
            found = onward(*start, X[:, 0], new.y - level, noise, columns_of(X))
            mean, variance = found.moments()
            means.append(mean + level)
            variances.append(variance + noise)
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())
