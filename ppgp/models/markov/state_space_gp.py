"""Exact Gaussian-process regression on one column, in time linear in the number of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...arguments import check_names_of_arguments
from ...capabilities import (
    JointGaussian,
    LatentFunction,
    LeaveOneOut,
    PosteriorFunctions,
)
from ...data.dataset import Dataset, Scaler
from ...kernels import Kernel, Matern
from ...kernels.fourier_features import Draw
from ...likelihoods import Likelihood
from ...numerics.cholesky import add_diagonal
from ...priors import LogNormal, Param, PriorLike, Site, rescaled, site
from ...runtime.result_cache import ResultCache
from ..base import full_batch_only
from ..exact.latent_model import show_latent
from ..gaussian_predictions import with_noise
from ..known_noise import check_aligned, refuse_duplicate_rows
from ..means import MeanLike
from ..sites import Theta, draw, first_draw, number_of_draws, split_params
from ..units import power
from .latent_state_space_gp import state_space_with_likelihood
from .state_space_components import StateSpaceComponents
from .state_space_functions import DrawnFunctions, states_at_rows
from .state_space_rows import StateSpaceMarginal
from .state_space_updates import StateSpaceUpdates


@dataclass(frozen=True, repr=False)
class StateSpaceGP(
    StateSpaceUpdates,
    StateSpaceComponents,
    LatentFunction,
    PosteriorFunctions,
    LeaveOneOut,
    JointGaussian,
):
    """Exact GP regression on one column in O(n): y ~ N(mean, K + noise I + diag(noise_sd^2)).

    The same model as ``GP``, with K [n, n] at n times, for kernels whose function is part of a
    Markov process in time: Matern, Exponential, Constant, Linear, Cosine, their sums, products of
    stationary ones, and Scale. Hartikainen & Sarkka (2010); Sarkka & Solin (2019), chapter 12. The
    rows are filtered and smoothed in parallel over runs of time, Sarkka & Garcia-Fernandez (2021),
    with the slopes of Koopman & Shephard (1992). Times may be irregular, in any order, and equal;
    times without y are rows to predict. Regressors are further states that never change, Durbin &
    Koopman (2012), section 6.2.

    Args:
        kernel: A kernel with a state space.
        noise: Prior or number for the noise variance (a number is in the square of the units of y).
            0: no estimated noise; the GP interpolates unless the Dataset has known noise.
        mean: Number, prior, ``LinearMean`` or function of X: see ``GP``; None: the mean of the
            training rows (0 in a recipe that was not prepared).
        regressors: Prior Normal(0, scale) of the weights of the other columns of X, which enter
            linearly; the first column is the time. The scale is one number or one per column. The
            weights are integrated exactly. Under ``fit(standardise=True)`` the columns enter minus
            their means. None: X is the time alone.
        likelihood: The distribution of y given f in place of Gaussian noise, such as Poisson(). The
            result is a ``LatentStateSpaceGP``. None: Gaussian noise.
        latent: With a likelihood, how f is integrated out: "laplace", or None for the same.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        NotApplicable: For a kernel without a state space; the message names its nearest relative.
            For a likelihood with several functions of x, or without slopes by formula, and another
            ``latent`` than "laplace".
        SettingError: If kernel or likelihood is something else, for a negative noise, ``latent``
            without a likelihood, or regressors that are not Normal(0, scale); from ``fit``, for
            more than one column without regressors.
        DataError: From ``fit``, for equal times under a noise of exactly 0.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, models
        >>> time = torch.tensor([0.0, 0.5, 0.5, 2.0, 3.5, 4.0])[:, None].double()  # irregular
        >>> data = ppgp.Dataset(time, [0.3, 0.8, 0.9, 1.0, -0.2, -0.6])
        >>> fixed = {"kernel": kernels.Matern(2.5, 1.0, 1.5), "noise": 0.04, "mean": 0.0}
        >>> options = {"how": inference.MAP(), "progress": False, "standardise": False}
        >>> linear = ppgp.fit(models.StateSpaceGP(**fixed), data, **options)  # in O(n)
        >>> dense = ppgp.fit(models.GP(**fixed), data, **options)  # in O(n^3)
        >>> abs(linear.log_evidence - dense.log_evidence) < 1e-6
        True
        >>> forecast = linear.predict([[5.0], [500.0]])
        >>> forecast.variance.numpy().round(2)  # 1 + 0.04 far in the future
        array([0.47, 1.04])
    """

    kernel: Kernel = field(default_factory=Matern)
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: MeanLike | None = None
    regressors: PriorLike | None = None
    likelihood: Likelihood | None = field(default=None, repr=False, kw_only=True)
    standardised: bool = field(default=False, kw_only=True)
    known_noise = True
    joint_rows = True
    keeps_factor = True
    sampled_rows = 1000

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Return a StateSpaceGP, or with a likelihood a LatentStateSpaceGP."""
        if options.get("likelihood") is None and options.get("latent") is None:
            return super().__new__(cls, **options)
        check_names_of_arguments(StateSpaceGP, options)
        return state_space_with_likelihood(*arguments, **options)

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **self.kernel_sites(d),
            "noise": site("noise", self.noise, positive=True, zero=True),
            **self.mean_sites(d),
        }

    def work(self, n: int, d: int) -> float:
        return n * 50.0 * self.width(d) ** 2

    def prepare(self, data: Dataset) -> StateSpaceGP:
        """Return the recipe with the mean of these rows.

        Raises:
            SettingError: For more than one column.
            DataError: For duplicate rows under a noise of exactly 0, whose covariance is singular.
        """
        self.sites_at(data.d)
        if self.noise == 0:
            where = "different rows of X"
            refuse_duplicate_rows(data.X, data.noise_sd, None, where, "noise")
        return replace(self, mean=self.mean_for(data))

    def in_units(self, scaler: Scaler) -> StateSpaceGP:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        return replace(self, noise=noise, **self.process_in_units(scaler))

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return self.hyperparameters_of_data(draws, self.process_factors(scaler), scaler)

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        noise_sd: Tensor | None = None,
        total: int | None = None,
    ) -> Tensor:
        """Run the Pyro program of the model; see ``GP.model``.

        Args:
            X: Times [n, 1].
            y: Targets [n]; None: they are drawn.
            noise_sd: The known noise sd of each row [n], in addition to ``noise``, if any.
            total: Number of rows that a mini-batch was taken from; None: these are all the rows.

        Returns:
            The targets [n].

        Raises:
            DataError: If ``noise_sd`` does not have one number per row.
            NotApplicable: For a mini-batch.
        """
        full_batch_only(self, X, total, "use the full batch, which costs O(n)")
        check_aligned(noise_sd, X)
        theta = draw(self.sites_at(X.shape[-1]), X)
        loc = self.mean_at(theta, X).expand(len(X))
        steps = self.noisy_steps(theta, X, noise_sd)
        return pyro.sample("y", StateSpaceMarginal(loc, steps), obs=y)

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        noise_sd: Tensor | None = None,
        kept: ResultCache | None = None,
    ) -> Distribution:
        """Return the predictive distribution of y at X.

        Args:
            theta: {site: [draw, *event]}.
            X: Times [m, 1], before, between, at or after the training rows.
            train: The training rows.
            joint: Whether the rows are predicted jointly.
            noise_sd: The known noise sd of the new rows [m], if any.
            kept: Where the states at the training rows are kept between predictions.

        Returns:
            A Normal of batch [draw, m]; if ``joint``, a MultivariateNormal of batch [draw] and
            event [m].
        """
        moments = self._joint if joint else self._marginal
        mean, spread = moments(theta, X, train, kept)
        return with_noise(mean, spread, self.noise_at(theta, X, noise_sd), joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        """Return the predictive distribution of f at X, without the noise: batch [draw, m]."""
        mean, variance = self._marginal(theta, X, train, kept)
        return dist.Normal(mean, variance.sqrt())

    def gaussian(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the joint Gaussian distribution of y and f at the first draw; see ``GP``."""
        one = first_draw(self.sites_at(X.shape[-1]), theta)
        mean = self.mean_at(one, X)
        variance = self.prior_variances(one, X) + self.noise_at(one, X, noise_sd)
        C = add_diagonal(self.prior(one, train.X), self.noise_at(one, train.X, train.noise_sd))
        residual = train.y - self.mean_at(one, train.X)
        return C, residual, self.prior(one, train.X, X), variance, mean.expand(len(X))

    def pathwise(
        self,
        theta: Theta,
        train: Dataset,
        samples: int,
        features: int | None,
        generator: torch.Generator,
    ) -> Callable[[Tensor], Tensor]:
        """Draw functions from the posterior, each at a random draw of theta.

        They are exact, whatever the number of features.

        Args:
            theta: {site: [draw, *event]}.
            train: The training rows.
            samples: Number of functions.
            features: Not used.
            generator: The random generator.

        Returns:
            A function X [m, 1] -> [samples, m].
        """
        drawn, params = split_params(self.sites_at(train.d), theta)
        chosen = torch.randint(
            number_of_draws(drawn), (samples,), generator=generator, device="cpu"
        )
        paths: list[tuple[Theta, DrawnFunctions]] = []
        for i in chosen.unique().tolist():
            one = {**params, **{name: value[i] for name, value in drawn.items()}}
            settings = Draw(int((chosen == i).sum()), 0, generator, train.X)
            steps = self.noisy_steps(one, train.X, train.noise_sd)
            states = states_at_rows(steps, train.y - self.mean_at(one, train.X), settings)
            space = self.space(one, train.X)
            paths.append((one, DrawnFunctions(space, steps.times, states, settings)))

        def functions(X: Tensor) -> Tensor:
            H = self.observation(X)
            return torch.cat([self.mean_at(one, X) + path(X[:, 0], H) for one, path in paths])

        return functions

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        Its mean is y_i - u_i / d_i and its variance 1 / d_i, with u = C^-1 (y - mean) and
        d = diag C^-1. Rasmussen & Williams (2006), equations 5.10 to 5.12.
        """
        back = torch.argsort(torch.sort(train.X[:, 0], stable=True).indices)
        means, variances = [], []
        for chunk, part in self._chunks(theta, train, 0):
            found = self._smoothed(part, train, chunk, None)
            u, d = found.u[..., back], found.d[..., back]
            shape = (chunk.stop - chunk.start, train.n)
            means.append((train.y - u / d).expand(shape))
            variances.append((1 / d).expand(shape))
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data).log_prob(data.y)}


show_latent(StateSpaceGP)
