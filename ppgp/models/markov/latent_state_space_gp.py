"""Gaussian processes of one column with any likelihood, in time linear in the number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
from torch import Tensor

from ...data.dataset import Dataset, Scaler
from ...errors import NotApplicable
from ...kernels import Kernel, Matern
from ...likelihoods import Bernoulli, Likelihood
from ...priors import Param, PriorLike, Site
from ...runtime.result_cache import ResultCache
from ..base import full_batch_only
from ..exact.latent_model import LatentModel, check_latent
from ..means import MeanLike
from ..sites import Theta, draw, one_by_one
from .latent_state_space_rows import AtMode, LatentStateSpaceMarginal, at_mode
from .state_space_components import StateSpaceComponents
from .state_space_predictions import Smoothed
from .state_space_rows import Steps

SEARCH = 10  # filters in the search for one mode, about


@dataclass(frozen=True, repr=False)
class LatentStateSpaceGP(StateSpaceComponents, LatentModel):
    """GP on one column of any likelihood in O(n): f ~ GP(mean, kernel), and y_i given f_i.

    ``StateSpaceGP(kernel, likelihood=..., latent="laplace")`` makes it. It is the model of
    ``GP(kernel, likelihood=..., latent="laplace")`` for the kernels of ``StateSpaceGP``, and agrees
    with it to rounding. Nickisch, Solin & Grigorevskiy (2018). f [n] is in the units of the link,
    such as log rates for Poisson, and a number for a lengthscale is in the units of the time.

    f is integrated out by Laplace's method given the hyperparameters, which are the sites: MAP
    maximises the evidence times their prior, and NUTS averages over them. Each step of the search
    for the mode of f is a filter and a smoother over Gaussian rows. The evidence is equation 3.32
    of Rasmussen & Williams (2006), with its exact gradient, also in O(n). Where the log density of
    a row is not concave, such as that of StudentT, the search takes the expected curvature, and the
    evidence the observed one.

    Args:
        kernel: A kernel with a state space: see ``StateSpaceGP``.
        likelihood: Any likelihood of one function of x with formulas for its slopes; see
            ``LatentGP``.
        mean: The mean of f: number, prior, ``LinearMean`` or function of X, see ``GP``; None: the
            mean of the training rows, and 0 under a likelihood of classes, counts or positive
            numbers.
        regressors: Prior Normal(0, scale) of the weights of the other columns of X, which enter f
            linearly; see ``StateSpaceGP``.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If the likelihood is not a member of ``ppgp.likelihoods``; from ``fit``, for
            more than one column without regressors.
        NotApplicable: For a kernel without a state space, or if the likelihood has several
            functions, or no slopes by formula.
        DataError: From ``fit``, if y does not suit the likelihood.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, likelihoods, models
        >>> time = torch.arange(12, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(time, [2, 3, 2, 4, 5, 7, 8, 6, 5, 3, 2, 1])  # counts
        >>> kernel = kernels.Matern(1.5, variance=1.0, lengthscale=3.0)
        >>> options = {"how": inference.MAP(), "progress": False, "standardise": False}
        >>> linear = models.StateSpaceGP(kernel, likelihood=likelihoods.Poisson())  # in O(n)
        >>> dense = models.GP(kernel, likelihood=likelihoods.Poisson())  # in O(n^3)
        >>> both = (linear, dense)
        >>> rates = [ppgp.fit(model, data, **options).predict(time).mean for model in both]
        >>> type(linear).__name__, type(dense).__name__
        ('LatentStateSpaceGP', 'LatentGP')
        >>> bool((rates[0] - rates[1]).abs().max() < 1e-6)
        True
        >>> int(rates[0].argmax())  # the time of the highest rate
        6
    """

    kernel: Kernel = field(default_factory=Matern)
    likelihood: Likelihood = field(default_factory=Bernoulli)
    mean: MeanLike | None = None
    regressors: PriorLike | None = None
    standardised: bool = field(default=False, kw_only=True)
    joint_rows = True
    keeps_factor = True
    sampled_rows = 0  # a gradient takes some 50 ms for few rows too: it searches for a mode

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {**self.kernel_sites(d), **self.likelihood.sites(), **self.mean_sites(d)}

    def work(self, n: int, d: int) -> float:
        return SEARCH * n * 50.0 * self.width(d) ** 2

    def chunked(self, data: Dataset) -> bool:
        """Return True: the density has a search inside, which cannot be compiled."""
        return True

    def prepare(self, data: Dataset) -> LatentStateSpaceGP:
        """Return the recipe with a likelihood and a mean for these rows.

        Raises:
            SettingError: For more than one column without ``regressors``.
            DataError: If y does not suit the likelihood.
        """
        self.sites_at(data.d)
        mean = self.mean_for(data)
        return replace(self, likelihood=self.likelihood.prepare(data), mean=mean)

    def in_units(self, scaler: Scaler) -> LatentStateSpaceGP:
        likelihood = self.likelihood.in_units(float(scaler.y_sd))
        return replace(self, likelihood=likelihood, **self.process_in_units(scaler))

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        own = self.likelihood.factors(float(scaler.y_sd))
        return self.hyperparameters_of_data(draws, self.process_factors(scaler) | own, scaler)

    # -- the program --------------------------------------------------------------------------

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        full_batch_only(self, X, total, "use the full batch, which costs O(n)")
        theta = draw(self.sites_at(X.shape[-1]), X)
        mean = self.mean_at(theta, X).expand(len(X))
        own = self.of_likelihood(theta)
        joint = LatentStateSpaceMarginal(self.likelihood, own, mean, self._steps(theta, X))
        return pyro.sample("y", joint, obs=y)

    def _steps(self, theta: Theta, X: Tensor, backwards: bool = False) -> Steps:
        return self.steps(theta, X, X.new_ones(1), backwards)

    # -- f given the training rows, one draw at a time: theta is {site: [*event]} ----------------

    def _chunks(self, theta: Theta, train: Dataset, m: int) -> Iterator[tuple[slice, Theta]]:
        """Yield the slice of each draw and theta there: each has a mode of its own."""
        for i, one in enumerate(one_by_one(self.sites_at(train.d), theta)):
            yield slice(i, i + 1), one

    def _at_mode(self, theta: Theta, train: Dataset, backwards: bool = False) -> AtMode:
        steps = self._steps(theta, train.X, backwards)
        mean = self.mean_at(theta, train.X).expand(train.n)
        return at_mode(steps, self.likelihood, self.of_likelihood(theta), mean, train.y)

    def _conditioned(self, theta: Theta, train: Dataset, backwards: bool) -> Smoothed:
        return self._at_mode(theta, train, backwards).smoothed()

    def moments(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean [draw, m] of f at X, and its variance or, if ``joint``, covariance."""
        return (self._joint if joint else self._marginal)(theta, X, train, kept)

    def without_each_row(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        return self._at_mode(theta, train).without_each_row()


def state_space_with_likelihood(
    kernel: Kernel | None = None,
    noise: PriorLike | None = None,
    mean: MeanLike | None = None,
    regressors: PriorLike | None = None,
    *,
    likelihood: Any = None,
    latent: Any = None,
    standardised: bool = False,
) -> LatentStateSpaceGP:
    """Return the LatentStateSpaceGP that ``StateSpaceGP`` with these arguments makes.

    Raises:
        SettingError: If latent is given without a likelihood, or noise beside one.
        NotApplicable: For another ``latent`` than "laplace".
    """
    check_latent(likelihood, noise)
    if latent not in (None, "laplace"):
        do = "use GP(kernel, likelihood=..., latent=...) on few rows"
        raise NotApplicable("latent='laplace' for StateSpaceGP", repr(latent), do)
    kernel = Matern() if kernel is None else kernel
    return LatentStateSpaceGP(kernel, likelihood, mean, regressors, standardised=standardised)
