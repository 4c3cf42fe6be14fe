"""The common part of Gaussian processes whose algebra uses a grid, one draw at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...data.dataset import Dataset, Scaler
from ...kernels.base import OutputColumn
from ...priors import Param, PriorLike, Site, prefixed, site
from ...runtime.result_cache import ResultCache
from ..advice.memory_checks import check_memory_of_predictions
from ..exact.gp import GP
from ..means import WithMean
from ..noise import with_noise
from ..sites import Theta, one_by_one


class StructuredGP(WithMean):
    """GP regression y ~ N(mean, K + noise I), with sites as those of ``GP``.

    A subclass defines its training factor and its predictions for one draw {site: [*event]}.

    Attributes:
        noise: Prior or number for the noise variance, which cannot be 0.
    """

    noise: PriorLike
    joint_rows = True
    keeps_factor = True

    @abstractmethod
    def dense(self, d: int) -> GP:
        """Return the exact GP with the kernel of this model for inputs of d columns."""

    @abstractmethod
    def training_factor(self, theta: Theta, train: Dataset) -> tuple[Tensor, ...]:
        """Return what predictions at any rows share, for one draw theta {site: [*event]}."""

    @abstractmethod
    def conditional(
        self, theta: Theta, X: Tensor, train: Dataset, factor: tuple[Tensor, ...], joint: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the moments of f at X for one draw theta {site: [*event]}.

        The first is the mean [m], the second the variance [m] or, if ``joint``, the covariance
        [m, m].
        """

    @abstractmethod
    def leave_one_out(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance of each y_i given the other rows, [n], for one draw."""

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.dense(d).kernel.sites(d)),
            "noise": site("noise", self.noise, positive=True),
            **self.mean_of(d).sites(d),
        }

    def output_columns(self, d: int) -> Mapping[int, OutputColumn]:
        return self.dense(d).kernel.output_columns()

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return self.dense(len(scaler.x_sd)).data_units(draws, scaler)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.dense(data.d).check_fit(theta, data)

    def _moments(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and variance of f at X for each draw, and the noise variance [draw]."""
        kept = kept or ResultCache(limit=0)
        every = one_by_one(self.sites_at(train.d), theta)
        check_memory_of_predictions(len(every), len(X), X, joint)
        means = X.new_empty(len(every), len(X))
        spreads = X.new_empty(len(every), *((len(X),) if joint else ()), len(X))
        noises = X.new_empty(len(every))
        for i, one in enumerate(every):
            compute = partial(self.training_factor, one, train)
            factor = kept.get(i, compute, one, not train.team.alone)
            means[i], spreads[i] = self.conditional(one, X, train, factor, joint)
            noises[i] = self.value(one, "noise", X)
        return means, spreads, noises

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        kept: ResultCache | None = None,
    ) -> Distribution:
        """Return the distribution of y at X: a Normal, or a MultivariateNormal if ``joint``."""
        mean, spread, noise = self._moments(theta, X, train, joint, kept)
        return with_noise(mean, spread, noise[:, None], joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        """Return the predictive distribution of f at X, without the noise: batch [draw, m]."""
        mean, spread, _ = self._moments(theta, X, train, False, kept)
        return dist.Normal(mean, spread.sqrt_())

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        Rasmussen & Williams (2006), equations 5.10 to 5.12.
        """
        moments = [
            self.leave_one_out(one, train) for one in one_by_one(self.sites_at(train.d), theta)
        ]
        means, variances = (torch.stack(parts) for parts in zip(*moments, strict=True))
        return dist.Normal(means, variances.sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data).log_prob(data.y)}
