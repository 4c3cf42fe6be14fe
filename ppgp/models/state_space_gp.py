"""Exact Gaussian-process regression on one column, in time linear in the number of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset, Scaler
from ..errors import NotApplicable, SettingError
from ..kernels import Kernel, Matern, Sum
from ..kernels.base import check_kernel
from ..kernels.fourier_features import Draw
from ..kernels.state_space import require
from ..kernels.units import Units
from ..numerics.cholesky import add_diagonal
from ..numerics.least_variance import at_least_rounding
from ..numerics.result_cache import ResultCache
from ..priors import (
    LogNormal,
    Param,
    PriorLike,
    Site,
    prefixed,
    rescaled,
    site,
)
from ..target.capabilities import (
    Capability,
    Components,
    IntegratedCoefficients,
    JointGaussian,
    LatentFunction,
    LeaveOneOut,
    PosteriorFunctions,
)
from .advice import instead_of
from .base import full_batch_only
from .first_scales import first_scales
from .gaussian_predictions import with_noise
from .known_noise import check_aligned, refuse_duplicate_rows
from .memory_checks import check_memory_of_rows
from .sites import Theta, draw, first_draw, mean_site, number_of_draws, split_params
from .state_space_conditioning import StateSpaceConditioning
from .state_space_functions import DrawnFunctions, states_at_rows
from .state_space_regressors import check_regressors, check_width, regressors_in_units
from .state_space_rows import StateSpaceMarginal
from .terms import as_written
from .terms import labels as labels_of
from .units import mean_on_model_scale, mean_or_default, of_gp, power

UNCOMPILED = 1500  # rows times states from which a graph of all steps takes long to compile


@dataclass(frozen=True, repr=False)
class StateSpaceGP(
    StateSpaceConditioning,
    LatentFunction,
    PosteriorFunctions,
    Components,
    LeaveOneOut,
    JointGaussian,
    IntegratedCoefficients,
):
    """Exact GP regression on one column in O(n): y ~ N(mean, K + noise I + diag(noise_sd^2)).

    The same model as ``GP``, for kernels whose function is part of a Markov process in time:
    Matern, Exponential, Constant, Linear, Cosine, their sums, products of stationary ones, and
    Scale. Hartikainen & Sarkka (2010); Sarkka & Solin (2019), chapter 12. The rows are filtered
    and smoothed in parallel over runs of time, Sarkka & Garcia-Fernandez (2021), with the slopes
    of Koopman & Shephard (1992). Times may be irregular, in any order, and equal; times without y
    are rows to predict. Regressors are further states that never change, Durbin & Koopman (2012),
    section 6.2.

    Args:
        kernel: a kernel with a state space.
        noise: prior or number for the noise variance. 0: no estimated noise; the GP interpolates
            unless the Dataset has known noise.
        mean: prior or number for the constant mean; None: the mean of the training rows (0 in a
            recipe that was not prepared).
        regressors: prior Normal(0, scale) of the weights of the other columns of X, which enter
            linearly; the first column is the time. The scale is one number or one per column. The
            weights are integrated exactly. Under ``fit(standardise=True)`` the columns enter minus
            their means. None: X is the time alone.
        standardised: set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        NotApplicable: for a kernel without a state space; the message names its nearest relative.
    """

    kernel: Kernel = field(default_factory=Matern)
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: PriorLike | None = None
    regressors: PriorLike | None = None
    standardised: bool = field(default=False, kw_only=True)
    known_noise = True
    joint_rows = True
    keeps_factor = True
    sampled_rows = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(check_kernel(self.kernel))
        check_regressors(self.regressors)

    def sites(self, d: int) -> dict[str, Site | Param]:
        if d != 1 and self.regressors is None:
            wanted = "one column of X, the time, for StateSpaceGP without regressors"
            do = (
                "pass that column alone, give the other columns a prior, such as "
                f"regressors=Normal(0, 1), or {instead_of('StateSpaceGP', d)}"
            )
            raise SettingError(wanted, f"{d} columns", do)
        check_width(self.regressors, d)
        return {
            **prefixed("kernel", self.kernel.sites(1)),
            "noise": site("noise", self.noise, positive=True, zero=True),
            "mean": mean_site(self.mean),
        }

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return the values of sites that define them, and the scales of highest density."""
        given = super().start(data)
        return {**given, **first_scales(self, data, given)}

    def work(self, n: int, d: int) -> float:
        return n * 50.0 * self._width(d) ** 2

    def chunked(self, data: Dataset) -> bool:
        return data.n * self._width(data.d) >= UNCOMPILED

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the matrices of n rows fit into memory.

        Raises:
            NotEnoughMemory: if they do not.
        """
        s = self._width(d)
        do = "pass fewer rows, or average rows that are close in time"
        check_memory_of_rows(n, 12.0 * s * s + 20.0 * s, like, "the states", do)

    def prepare(self, data: Dataset) -> StateSpaceGP:
        """Return the recipe with the mean of these rows.

        Raises:
            SettingError: for more than one column.
            DataError: for duplicate rows under a noise of exactly 0, whose covariance is singular.
        """
        self.sites_at(data.d)
        if self.noise == 0:
            where = "different rows of X"
            refuse_duplicate_rows(data.X, data.noise_sd, None, where, "noise")
        return replace(self, mean=mean_or_default(self.mean, data))

    def in_units(self, scaler: Scaler) -> StateSpaceGP:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        kernel = self.kernel.in_units(Units.of(scaler).columns((0,)))
        mean = mean_on_model_scale(self.mean, scaler)
        regressors = regressors_in_units(self.regressors, scaler)
        return replace(self, kernel=kernel, noise=noise, mean=mean, regressors=regressors)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        factors = self.kernel.factors(Units.of(scaler).columns((0,)))
        return of_gp(draws, {f"kernel.{name}": f for name, f in factors.items()}, scaler)

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
            X: times [n, 1].
            y: targets [n]; None: they are drawn.
            noise_sd: the known noise sd of each row [n], in addition to ``noise``, if any.
            total: number of rows that a mini-batch was taken from; None: these are all the rows.

        Returns:
            The targets [n].

        Raises:
            DataError: if ``noise_sd`` does not have one number per row.
            NotApplicable: for a mini-batch.
        """
        full_batch_only(self, X, total, "use the full batch, which costs O(n)")
        check_aligned(noise_sd, X)
        theta = draw(self.sites_at(X.shape[-1]), X)
        loc = self.value(theta, "mean", X).expand(len(X))
        return pyro.sample("y", StateSpaceMarginal(loc, self._steps(theta, X, noise_sd)), obs=y)

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
            X: times [m, 1], before, between, at or after the training rows.
            train: the training rows.
            joint: whether the rows are predicted jointly.
            noise_sd: the known noise sd of the new rows [m], if any.
            kept: where the states at the training rows are kept between predictions.

        Returns:
            A Normal of batch [draw, m]; if ``joint``, a MultivariateNormal of batch [draw] and
            event [m].
        """
        moments = self._joint if joint else self._marginal
        mean, spread = moments(theta, X, train, kept)
        return with_noise(mean, spread, self._noise(theta, X, noise_sd), joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        """Return the predictive distribution of f at X, without the noise: batch [draw, m]."""
        mean, variance = self._marginal(theta, X, train, kept)
        return dist.Normal(mean, variance.sqrt())

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is IntegratedCoefficients and self.regressors is None:
            got = "StateSpaceGP without regressors"
            return NotApplicable(capability.expected, got, "pass regressors=Normal(0, scale)")
        if capability is Components and not isinstance(self.kernel, Sum):
            got = type(as_written(self.kernel)).__name__
            return NotApplicable("a sum of kernels", got, "add kernels with +, or use latent")
        return None

    def components(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return the distribution of each term of a sum of kernels at X, batch [draw, m].

        Each term has states of its own. No term includes the constant mean.
        """
        assert isinstance(self.kernel, Sum)  # see lacks
        H, labels, start = self._observation(X), labels_of(self.kernel), 0
        like = {name: X.new_ones(s.shape) for name, s in self.kernel.sites(1).items()}
        parts: dict[str, Tensor] = {}
        sizes = [len(space.observation) for space in self.kernel.state_spaces(like, X)]
        if X.shape[-1] > 1:
            labels, sizes = [*labels, "regressors"], [*sizes, X.shape[-1] - 1]
        for name, size in zip(labels, sizes, strict=True):
            parts[name] = torch.zeros_like(H)
            parts[name][start : start + size] = H[start : start + size]
            start += size
        moments: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in labels}
        for chunk, _, states in self._states(theta, X, train):
            shape = (chunk.stop - chunk.start, len(X))
            for name, own in parts.items():
                mean, variance = states.of(own)
                variance = at_least_rounding(variance, torch.zeros_like(variance))
                moments[name].append((mean.expand(shape), variance.expand(shape)))
        return {
            name: dist.Normal(
                torch.cat([m for m, _ in each]), torch.cat([v for _, v in each]).sqrt()
            )
            for name, each in moments.items()
        }

    def weighted(self, d: int) -> range:
        return range(1, d)

    def weight_moments(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        r = train.d - 1
        # at the last time, the states given the rows before it are those given all rows
        X = train.X[train.X[:, 0].argmax()].expand(r, -1)
        H = torch.eye(self._width(train.d)).to(X)[:, -r:]
        means, variances = [], []
        for chunk, _, states in self._states(theta, X, train):
            mean, variance = states.of(H)
            shape = (chunk.stop - chunk.start, r)
            means.append(mean.expand(shape))
            variances.append(variance.expand(shape))
        return torch.cat(means), torch.cat(variances).sqrt()

    def gaussian(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the joint Gaussian distribution of y and f at the first draw; see ``GP``."""
        one = first_draw(self.sites_at(X.shape[-1]), theta)
        mean = self.value(one, "mean", X)
        variance = self._prior_variances(one, X) + self._noise(one, X, noise_sd)
        C = add_diagonal(self._prior(one, train.X), self._noise(one, train.X, train.noise_sd))
        return C, train.y - mean, self._prior(one, train.X, X), variance, mean.expand(len(X))

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
            train: the training rows.
            samples: number of functions.
            features: not used.
            generator: the random generator.

        Returns:
            A function X [m, 1] -> [samples, m].
        """
        drawn, params = split_params(self.sites_at(train.d), theta)
        chosen = torch.randint(number_of_draws(drawn), (samples,), generator=generator)
        paths: list[tuple[Tensor, DrawnFunctions]] = []
        for i in chosen.unique().tolist():
            one = {**params, **{name: value[i] for name, value in drawn.items()}}
            settings = Draw(int((chosen == i).sum()), 0, generator, train.X)
            steps = self._steps(one, train.X, train.noise_sd)
            mean = self.value(one, "mean", train.X)
            states = states_at_rows(steps, train.y - mean, settings)
            space = self._space(one, train.X)
            paths.append((mean, DrawnFunctions(space, steps.times, states, settings)))

        def functions(X: Tensor) -> Tensor:
            H = self._observation(X)
            return torch.cat([mean + path(X[:, 0], H) for mean, path in paths])

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
