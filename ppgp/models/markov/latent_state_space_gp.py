"""Gaussian processes of one column with any likelihood, in time linear in the number of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyro
import torch
from torch import Tensor

from ...capabilities import Candidates, require
from ...data.dataset import Dataset, Scaler
from ...errors import NotApplicable, SettingError
from ...kernels import Kernel
from ...likelihoods import (
    Bernoulli,
    Exponential,
    Gamma,
    Likelihood,
    LogNormal,
    NegativeBinomial,
    Poisson,
    Weibull,
)
from ...likelihoods.joint_rows import LatentMarginal, LatentRows, LikelihoodRows
from ...numerics.laplace_evidence import laplace_log_evidence_under
from ...numerics.latent_mode import require_mode
from ...numerics.shapes import broadcast_shapes
from ...priors import Param, PriorLike, Site, under
from ...runtime.result_cache import ResultCache
from ..base import mini_batch
from ..exact.latent_model import LatentModel, check_latent
from ..means import MeanLike
from ..sites import Theta, draw, one_by_one
from .markov_laplace import MarkovPrior
from .markov_process import first_scales
from .parallel_scan import in_lanes, in_rows
from .series_rule import candidates_of
from .state_space_predictions import GivenRows, PartsOfProcess, Smoothed, smoothed
from .state_space_rows import Steps, drawn_functions

#: whose f is about the logarithm of y
LOGARITHMIC = (Exponential, Gamma, LogNormal, NegativeBinomial, Poisson, Weibull)
ROWS_BY_MATRIX = 400  # up to which the covariance of the rows is quicker than their states
SEARCH = 10  # filters in the search for one mode, about


@dataclass(frozen=True, repr=False)
class LatentStateSpaceGP(LatentModel, PartsOfProcess):
    """GP on one column of any likelihood in O(n): f ~ GP(mean, kernel), and y_i given f_i.

    ``StateSpaceGP(kernel, likelihood=..., latent="laplace")`` makes it. It is the model of
    ``GP(kernel, likelihood=..., latent="laplace")`` for the kernels of ``StateSpaceGP``, and agrees
    with it to rounding. Nickisch, Solin & Grigorevskiy (2018). f [n] is in the units of the link,
    such as log rates for Poisson, and a number for a lengthscale is in the units of the time.

    f is integrated out by Laplace's method given the hyperparameters, which are the sites: MAP
    maximises the evidence times their prior, and NUTS averages over them. Each step of the search
    for the mode of f is a filter and a smoother over Gaussian rows. The evidence is equation 3.32
    of Rasmussen & Williams (2006), with its exact gradient, also in O(n); that of up to 400 rows
    without regressors goes by their covariance, which is quicker. Where the log density of a row is
    not concave, such as that of StudentT, f may have several modes: the one with the highest
    evidence of those is taken to which searches from the mean and from y lead.

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

    kernel: Kernel | None = None
    likelihood: Likelihood = field(default_factory=Bernoulli)
    mean: MeanLike | None = None
    regressors: PriorLike | None = None
    standardised: bool = field(default=False, kw_only=True)
    joint_rows = True
    keeps_factor = True
    sampled_rows = 0  # a gradient takes some 50 ms for few rows too: it searches for a mode

    def __post_init__(self) -> None:
        super().__post_init__()
        self.process.check()

    @property
    def covariance(self) -> Kernel:
        """The kernel of the latent function."""
        return self.process.kernel

    def covariance_columns(self, d: int) -> list[int]:
        return [0]  # the time

    def sites(self, d: int) -> dict[str, Site | Param]:
        kernel = self.process.sites(d, type(self).__name__, self.likelihood)
        return {**kernel, **self.likelihood.sites(), **self.mean_of(d).sites(d)}

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return the values of sites that define them, and the scales of highest density."""
        given = super().start(data)
        return {**given, **first_scales(self, data, given)}

    def by_matrix(self, n: int, d: int) -> bool:
        """Return whether the density of n rows goes by their covariance, which is quicker.

        The states of few rows cost more in calls than in arithmetic. Predictions go by them.
        """
        return d == 1 and n <= ROWS_BY_MATRIX

    def work(self, n: int, d: int) -> float:
        if self.by_matrix(n, d):
            return SEARCH * float(n) ** 3
        return SEARCH * n * 50.0 * self.process.width(d) ** 2

    def chunked(self, data: Dataset) -> bool:
        """Return True: the density has a search inside, which cannot be compiled."""
        return True

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        self.process.check_memory(n, d, like)

    def prepare(self, data: Dataset) -> LatentStateSpaceGP:
        """Return the recipe with a likelihood and a mean for these rows.

        Raises:
            SettingError: For more than one column without ``regressors``.
            DataError: If y does not suit the likelihood.
        """
        self.process.check_time(data)
        self.sites_at(data.d)
        mean = self.mean_for(data)
        return replace(self, likelihood=self.likelihood.prepare(data), mean=mean)

    def in_units(self, scaler: Scaler) -> LatentStateSpaceGP:
        likelihood = self.likelihood.in_units(float(scaler.y_sd))
        own = self.process.in_units(scaler)
        return replace(self, likelihood=likelihood, mean=self.mean_in_units(scaler), **own)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        own = self.likelihood.factors(float(scaler.y_sd))
        return self.hyperparameters_of_data(draws, self.process.factors(scaler) | own, scaler)

    def candidates(self, data: Dataset, standardise: bool = True) -> list[LatentStateSpaceGP]:
        """Return the recipes that ``fit`` chooses among if no kernel is given.

        They are those of ``StateSpaceGP``, with priors from y, or from log(y + 1/2) for a
        likelihood of counts or positive numbers; [] for classes and shares.

        Args:
            data: The training rows.
            standardise: That of ``fit``.

        Raises:
            NotApplicable: If there is a kernel.
            DataError: If y does not suit the likelihood.
        """
        require(self, Candidates)
        self.likelihood.prepare(data)
        values = data.y
        if "y" not in self.scales:
            if not isinstance(self.likelihood, LOGARITHMIC):
                return []
            values = (values + 0.5).log()
        scaled = "y" in self.scales
        options = {"may_log": False, "scales_y": scaled, "standardise": standardise}
        found = candidates_of(data, values, few_states=True, **options)
        own = replace(self, regressors=self.process.regressors_for(data))
        return [replace(own, kernel=one.kernel) for one in found]

    # -- the program --------------------------------------------------------------------------

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        if total is not None and total != len(X):
            raise mini_batch(self, X, total, "use the full batch, which costs O(n)")
        theta = draw(self.sites_at(X.shape[-1]), X)
        mean = self.mean_at(theta, X).expand(len(X))
        own = self.of_likelihood(theta)
        if self.by_matrix(*X.shape):
            K = self.process.kernel(under("kernel", theta), X)
            by_matrix = LatentMarginal(self.likelihood, own, mean, K, "laplace")
            return pyro.sample("y", by_matrix, obs=y)
        joint = LatentStateSpaceMarginal(self.likelihood, own, mean, self._steps(theta, X))
        return pyro.sample("y", joint, obs=y)

    def _steps(self, theta: Theta, X: Tensor, backwards: bool = False) -> Steps:
        return self.process.steps(theta, X, X.new_ones(1), backwards)

    # -- f given the training rows ----------------------------------------------------------------

    def given_rows(
        self, theta: Theta, train: Dataset, kept: ResultCache | None = None
    ) -> GivenRows:
        """Return the process given the training rows, one draw at a time: each has its own mode."""
        each = one_by_one(self.sites_at(train.d), theta)

        def chunks(_: int) -> Iterator[tuple[slice, Theta]]:
            return ((slice(i, i + 1), one) for i, one in enumerate(each))

        def conditioned(one: Theta, backwards: bool) -> Smoothed:
            return self._at_mode(one, train, backwards).smoothed()

        return GivenRows(
            self.process, self.mean_at, theta, train, len(each), chunks, conditioned, kept
        )

    def _at_mode(self, theta: Theta, train: Dataset, backwards: bool = False) -> AtMode:
        """Return the Gaussian rows at the mode of f, for one draw {site: [*event]}."""
        steps = self._steps(theta, train.X, backwards)
        mean = self.mean_at(theta, train.X).expand(train.n)
        return at_mode(steps, self.likelihood, self.of_likelihood(theta), mean, train.y)

    def moments(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        given = self.given_rows(theta, train, kept)
        return given.joint(X) if joint else given.marginal(X)

    def without_each_row(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        return self._at_mode(theta, train).without_each_row()


def with_likelihood(
    kernel: Kernel | None = None,
    noise: PriorLike | None = None,
    mean: MeanLike | None = None,
    regressors: PriorLike | None = None,
    *,
    likelihood: Any = None,
    latent: Any = None,
    log: bool = False,
    few_by_matrix: bool = False,
    standardised: bool = False,
) -> LatentStateSpaceGP:
    """Return the LatentStateSpaceGP that ``StateSpaceGP`` with these arguments makes.

    The number of rows alone says whether it goes by states, whatever ``few_by_matrix`` says.

    Raises:
        SettingError: If latent is given without a likelihood, or noise or log beside one.
        NotApplicable: For another ``latent`` than "laplace".
    """
    check_latent(likelihood, noise)
    if log:
        do = "leave one of them out: LogNormal() is the likelihood of log y"
        raise SettingError("log=True without a likelihood", repr(likelihood), do)
    if latent not in (None, "laplace"):
        do = "use GP(kernel, likelihood=..., latent=...) on few rows"
        raise NotApplicable("latent='laplace' for StateSpaceGP", repr(latent), do)
    return LatentStateSpaceGP(kernel, likelihood, mean, regressors, standardised=standardised)


def prior_of(steps: Steps) -> MarkovPrior:
    """Return the distribution of f - mean at the rows in order of time."""
    return MarkovPrior(steps.F, steps.Q, steps.P0, steps.observed, len(steps.times))


@dataclass(frozen=True)
class AtMode:
    """Gaussian rows that stand for the rows of y, at the mode of f.

    Attributes:
        steps: The process at the rows, without a batch.
        a: K^-1 (f - mean) at the mode, [n] in order of time.
        h: The difference f - mean there.
        W: Minus the second derivatives of the log densities of the rows there.
    """

    steps: Steps
    a: Tensor
    h: Tensor
    W: Tensor

    def smoothed(self) -> Smoothed:
        """Return what the Gaussian rows say about the states."""
        s = self.steps
        observed = replace(s.observed, seen=in_lanes(self.W, s.lanes))
        rows = replace(s, R=torch.ones_like(s.R), observed=observed)
        return smoothed(rows, s.as_given(self.a + self.W * self.h))

    def without_each_row(self) -> tuple[Tensor, Tensor]:
        """Return the mean less the prior mean, and the variance, of each f_i without its own row.

        Each is [n] in the order of the rows as they were given. The Gaussian row of precision W_i
        is taken out; Vehtari et al. (2016), section 3.
        """
        variance = prior_of(self.steps).given(self.W, self.a + self.W * self.h).variance()
        cavity = variance / (1 - self.W * variance)
        return self.steps.as_given(self.h - cavity * self.a), self.steps.as_given(cavity)


def at_mode(
    steps: Steps, likelihood: Likelihood, own: dict[str, Tensor], mean: Tensor, y: Tensor
) -> AtMode:
    """Return the Gaussian rows at the mode of f.

    Args:
        steps: The process at the rows, without a batch.
        likelihood: Of one function of x, with slopes.
        own: {site: value} of the likelihood.
        mean: Of f, [n] in the order of the rows.
        y: The targets [n].

    Raises:
        NumericalError: If there is no finite mode.
    """
    rows = LikelihoodRows(likelihood, tuple(own), y[steps.order])
    found = require_mode(prior_of(steps), mean[steps.order], rows, tuple(own.values()))
    return AtMode(steps, *found)


class LatentStateSpaceMarginal(LatentRows):
    """y at n rows where f is a mean plus a Markov process in time, and y_i depends on f_i alone.

    ``log_prob`` is Laplace's approximation of the log density; samples are exact.

    Args:
        likelihood: As in LatentRows.
        theta: As in LatentRows.
        mean: As in LatentRows.
        steps: The process at the rows.
    """

    def __init__(self, likelihood: Likelihood, theta: Theta, mean: Tensor, steps: Steps) -> None:
        self.steps = steps
        batch = broadcast_shapes(mean.shape[:-1], steps.batch)
        super().__init__(likelihood, theta, mean, batch)

    def expand(
        self, batch_shape: Sequence[int], _instance: object = None
    ) -> LatentStateSpaceMarginal:
        """Return this distribution with another batch shape."""
        batch = torch.Size(batch_shape)
        return self._other(*self.of_batch(batch), self.steps.expand(batch))

    def one_by_one(self) -> list[LatentStateSpaceMarginal]:
        return [
            self._other(*one) for one in zip(*self.each(), self.steps.one_by_one(), strict=True)
        ]

    def _other(self, theta: Theta, mean: Tensor, steps: Steps) -> LatentStateSpaceMarginal:
        return LatentStateSpaceMarginal(self.likelihood, theta, mean, steps)

    def latent_variance(self) -> Tensor:
        s = self.steps
        nothing = torch.zeros(len(s.times)).to(s.F)
        return s.as_given(prior_of(s).given(nothing, nothing).variance())

    def log_evidence(self, y: Tensor) -> Tensor:
        s, theta = self.steps, self.theta
        rows = LikelihoodRows(self.likelihood, tuple(theta), y[s.order])
        prior = partial(MarkovPrior, observed=s.observed, n=len(s.times))
        tensors, own = (s.F, s.Q, s.P0), tuple(theta.values())
        return laplace_log_evidence_under(prior, tensors, self.latent_mean[s.order], rows, own)

    def drawn(self, shape: torch.Size) -> Tensor:
        functions = in_rows(drawn_functions(self.steps, shape), self.event_shape[0])
        return self.steps.as_given(functions)
