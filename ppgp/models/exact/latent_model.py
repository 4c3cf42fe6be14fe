"""What models of a Gaussian latent function f share, with any likelihood of y given f."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import LatentFunction, LeaveOneOut
from ...data.dataset import Dataset
from ...display.overrides import computed
from ...errors import NotApplicable, SettingError
from ...likelihoods import Categorical, FromDistribution, Likelihood, Scored
from ...likelihoods import Laplace as DoubleExponential
from ...likelihoods.base import check_is_likelihood
from ...likelihoods.joint_rows import LatentMarginal
from ...priors import LogNormal, PriorLike
from ...runtime.result_cache import ResultCache
from ..means import WithMean
from ..sites import Theta, one_by_one

NOISE = LogNormal(-2.0, 1.0)  # the default of ``GP``, which does not count as given


class LatentModel(WithMean, LatentFunction, LeaveOneOut):
    """A model whose f at new rows is Gaussian given the hyperparameters and the training rows."""

    likelihood: Likelihood

    def __post_init__(self) -> None:
        super().__post_init__()
        check_likelihood(self.likelihood)

    def _scales(self) -> str:
        """What ``fit`` may standardise, which depends on the likelihood."""
        return self.likelihood.scales

    scales = computed(_scales)

    @property
    def takes_labels(self) -> bool:
        return self.likelihood.takes_labels

    def _mean_is_free(self) -> bool:
        return "y" in self.scales

    mean_is_free = computed(_mean_is_free)

    def of_likelihood(self, theta: Theta) -> dict[str, Tensor]:
        """Return the sites of the likelihood."""
        return {name: theta[name] for name in self.likelihood.sites() if name in theta}

    @abstractmethod
    def moments(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean [draw, m] of f at X, and its variance or, if ``joint``, covariance."""

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        kept: ResultCache | None = None,
    ) -> Distribution:
        """Return the predictive distribution of y at X, averaged over f; see ``Model.predict``.

        The log density of the joint distribution of rows is Laplace's approximation; samples and
        moments have none.
        """
        mean, spread = self.moments(theta, X, train, joint, kept)
        own = self.of_likelihood(theta)
        if joint:
            return LatentMarginal(self.likelihood, own, mean, spread)
        return self.likelihood.marginal(own, mean, spread)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        mean, variance = self.moments(theta, X, train, False, kept)
        return dist.Normal(mean, variance.sqrt_())

    @abstractmethod
    def without_each_row(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        """Return the mean, less the prior mean, and the variance of each f_i without its own row.

        Each is [n], at one draw {site: [*event]}.
        """

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        The Gaussian row that stands for row i in the approximation of f is taken out; Vehtari et
        al. (2016). It is approximate also where the approximation of f is exact given all rows.
        """
        means, variances = [], []
        for one in one_by_one(self.sites_at(train.d), theta):
            mean, variance = self.without_each_row(one, train)
            means.append(self.mean_at(one, train.X) + mean)
            variances.append(variance)
        own = self.of_likelihood(theta)
        return self.likelihood.marginal(own, torch.stack(means), torch.stack(variances))

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data).log_prob(data.y)}


def check_latent(likelihood: Any, noise: PriorLike | None) -> None:
    """Check the arguments of a constructor that makes a model of f.

    Raises:
        SettingError: If there is no likelihood, or noise beside one.
    """
    if likelihood is None:
        do = "for example likelihood=Bernoulli()"
        raise SettingError("a likelihood beside latent", "none", do)
    if noise not in (None, NOISE):
        raise SettingError(
            "no noise beside a likelihood",
            f"noise={noise!r} and likelihood={likelihood!r}",
            "leave noise out; the likelihood has its own",
        )


def check_likelihood(likelihood: Any) -> None:
    """Check that the likelihood is one of a single function, with slopes by formula.

    Raises:
        SettingError: If it is no likelihood.
        NotApplicable: If it is another.
    """
    check_is_likelihood(likelihood)
    likelihood.check_real_f()
    several = isinstance(likelihood, Categorical) or bool(likelihood.predicted)
    rough = isinstance(likelihood, DoubleExponential | FromDistribution)
    if several or rough or not isinstance(likelihood, Scored):
        raise NotApplicable(
            "a likelihood of one function of x with formulas for its slopes",
            repr(likelihood),
            "use SVGP(kernel, likelihood=...)",
        )
