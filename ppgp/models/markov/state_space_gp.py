"""Exact Gaussian-process regression on one column, in time linear in the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, ExpTransform

from ...capabilities import (
    Candidates,
    Capability,
    JointGaussian,
    LatentFunction,
    LeaveOneOut,
    PosteriorFunctions,
    Updates,
    require,
)
from ...data.dataset import Dataset, Scaler
from ...display.overrides import computed
from ...errors import DataError, NotApplicable, listed
from ...kernels import Kernel
from ...kernels.fourier_features import Draw
from ...kernels.state_space import StateSpace
from ...likelihoods import Likelihood
from ...likelihoods.target_checks import check_positive
from ...numerics.cholesky import add_diagonal
from ...numerics.shapes import broadcast_shapes
from ...numerics.small_matrices import product, product_with_transpose, times_vector
from ...priors import LogNormal, Param, PriorLike, Site, rescaled, site, under
from ...runtime.result_cache import ResultCache
from ..base import TakesLikelihood, mini_batch, show_latent
from ..exact.gp import GP, gp_marginal
from ..means import MeanLike, WithMean
from ..noise import check_aligned, refuse_duplicate_rows, with_known, with_noise
from ..sites import Theta, draw, first_draw, number_of_draws, split_params
from ..units import power
from .kalman import passes, root, simulated
from .latent_state_space_gp import with_likelihood
from .markov_process import columns_of, first_scales
from .parallel_scan import in_rows
from .series_rule import ROWS_OF_MATRIX, Candidate, candidates_of
from .state_space_predictions import GivenRows, PartsOfProcess, Smoothed, onward, smoothed
from .state_space_rows import StateSpaceMarginal, Steps

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of one chunk of draws
UNCOMPILED = 1500  # rows times states from which a graph of all steps takes long to compile
MANY_STATES = 8
FEW = 2000  # new rows that are filtered one by one
NOISE = LogNormal(-2.0, 1.0)  # the default, which does not count as given
NEGLIGIBLE = 1e-12  # eigenvalues of a scaled covariance below it are those of rounding


@dataclass(frozen=True, repr=False)
class StateSpaceGP(
    TakesLikelihood,
    WithMean,
    Updates,
    PartsOfProcess,
    LatentFunction,
    PosteriorFunctions,
    LeaveOneOut,
    JointGaussian,
):
    """Exact GP regression on one column in O(n): y ~ N(mean, K + noise I + diag(noise_sd^2)).

    The same model as ``GP``, with K [n, n] at n times, for kernels whose function is part of a
    Markov process in time: Matern, Exponential, Constant, Linear, Cosine, Periodic, their sums,
    products of stationary ones, and Scale. Hartikainen & Sarkka (2010); Sarkka & Solin (2019),
    chapter 12. The rows are filtered and smoothed in parallel over runs of time, Sarkka &
    Garcia-Fernandez (2021), with the slopes of Koopman & Shephard (1992); up to 1,000 rows under a
    kernel of many states go by their covariance. Times may be irregular, in any order, and equal;
    times without y are rows to predict. Regressors are further states that never change, Durbin &
    Koopman (2012), section 6.2.

    Args:
        kernel: A kernel with a state space, which is taken as it is. None: ``fit`` fits each of
            ``candidates`` by MAP and keeps the one of the highest evidence, whose kernel is that of
            the result.
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
        log: Whether log y, in place of y, is Gaussian: y is positive, is not standardised, and has
            no known noise. f, the noise and the kernel are then those of log y.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.
        few_by_matrix: Set by ``candidates``: whether few rows go by their covariance, whatever the
            number of states.

    Raises:
        NotApplicable: For a kernel without a state space; the message names its nearest relative.
            For a likelihood with several functions of x, or without slopes by formula, and another
            ``latent`` than "laplace".
        SettingError: If kernel or likelihood is something else, for a negative noise, ``latent``
            without a likelihood, or regressors that are not Normal(0, scale); from ``fit``, for
            more than one column without regressors.
        DataError: From ``fit``, for equal times under a noise of exactly 0; with ``log``, for y
            that is not positive.

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

    kernel: Kernel | None = None
    noise: PriorLike = NOISE
    mean: MeanLike | None = None
    regressors: PriorLike | None = None
    likelihood: Likelihood | None = field(default=None, repr=False, kw_only=True)
    log: bool = field(default=False, kw_only=True)
    few_by_matrix: bool = field(default=False, repr=False, compare=False, kw_only=True)
    standardised: bool = field(default=False, kw_only=True)
    joint_rows = True
    keeps_factor = True
    sampled_rows = 1000
    with_likelihood = staticmethod(with_likelihood)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.process.check()

    @property
    def covariance(self) -> Kernel:
        """The kernel of the latent function."""
        return self.process.kernel

    def covariance_columns(self, d: int) -> list[int]:
        return [0]  # the time

    def _scales(self) -> str:
        """What ``fit`` may standardise."""
        return "X" if self.log else "Xy"

    scales = computed(_scales)

    def _known_noise(self) -> bool:
        return not self.log

    known_noise = computed(_known_noise)

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is JointGaussian and self.log:
            got = f"{type(self).__name__} of log y"
            return NotApplicable(capability.wanted, got, "leave out log=True")
        return super().lacks(capability)

    def of_f(self, data: Dataset) -> Dataset:
        """Return the rows with targets on the scale of f: log y, or y."""
        if not self.log:
            return data
        return data.with_numbers(data.X, data.y.log(), data.columns_with_roles)

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **self.process.sites(d, type(self).__name__),
            "noise": site("noise", self.noise, positive=True, zero=True),
            **self.mean_of(d).sites(d),
        }

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return the values of sites that define them, and the scales of highest density."""
        given = super().start(data)
        return given if self.log else {**given, **first_scales(self, data, given)}

    def work(self, n: int, d: int) -> float:
        if self.by_matrix(n, d):
            return float(n) ** 3
        return n * 50.0 * self.process.width(d) ** 2

    def chunked(self, data: Dataset) -> bool:
        many = data.n * self.process.width(data.d) >= UNCOMPILED
        return many and not self.by_matrix(data.n, data.d)

    def by_matrix(self, n: int, d: int) -> bool:
        """Return whether the covariance of n rows is cheaper than so many states."""
        cheaper = self.few_by_matrix or self.process.width(d) >= MANY_STATES
        return d == 1 and n <= ROWS_OF_MATRIX and cheaper

    @cached_property
    def _of_matrix(self) -> GP:
        """The same model by the covariance of its rows, whose sites have the same names."""
        # without the floor of the noise of a GP, which neither the density nor the states have
        return GP(self.process.kernel, self.noise, self.mean)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        self.process.check_memory(n, d, like)

    def prepare(self, data: Dataset) -> StateSpaceGP:
        """Return the recipe with the mean of these rows.

        Raises:
            SettingError: For more than one column.
            DataError: For duplicate rows under a noise of exactly 0, whose covariance is singular.
        """
        self.process.check_time(data)
        self.sites_at(data.d)
        if self.log:
            check_positive(data)
        if self.noise == 0:
            where = "different rows of X"
            refuse_duplicate_rows(data.X, data.noise_sd, None, where, "noise")
        return replace(self, mean=self.mean_for(self.of_f(data)))

    def in_units(self, scaler: Scaler) -> StateSpaceGP:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        own = self.process.in_units(scaler)
        return replace(self, noise=noise, mean=self.mean_in_units(scaler), **own)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return self.hyperparameters_of_data(draws, self.process.factors(scaler), scaler)

    def candidates(self, data: Dataset, standardise: bool = True) -> list[StateSpaceGP]:
        """Return the recipes that ``fit`` chooses among if no kernel is given.

        Each is a level, one trend (smooth, a random walk, one with drift, or a cycle at the highest
        Lomb-Scargle peak), and seasons at periods that the spacing of the times suggests, with
        priors in units of the spacing and the span.

        Args:
            data: The training rows. If they name the time, other columns are regressors.
            standardise: That of ``fit``: the slope of a drift has its prior on the scale of the
                model.

        Returns:
            Recipes that can each be fitted alone; [] where the times or y are all the same.

        Raises:
            NotApplicable: If there is a kernel.
        """
        require(self, Candidates)
        own = replace(self, regressors=self.process.regressors_for(data), few_by_matrix=True)
        return [
            replace(own, kernel=one.kernel, noise=self._noise_of(one), log=one.log or self.log)
            for one in candidates_of(
                data,
                self.of_f(data).y,
                may_log=self._may_log(data),
                scales_y="y" in self.scales,
                standardise=standardise,
            )
        ]

    def _may_log(self, data: Dataset) -> bool:
        """Return whether log y is a choice, which no number in the units of y forbids."""
        ours = self.noise == NOISE and self.mean is None and data.d == 1
        return ours and not self.log and data.noise_sd is None

    def _noise_of(self, one: Candidate) -> PriorLike:
        """Return the prior of the noise: that of the user, or of a candidate."""
        return one.noise if self.noise == NOISE else self.noise

    # -- the program ------------------------------------------------------------------------------

    def noise_at(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the noise variance of rows, [*b, 1] or [*b, n]; b are the axes of all draws."""
        noise = self.value(theta, "noise", X)[..., None]
        # also where the mean alone is drawn
        draws = broadcast_shapes(noise.shape[:-1], self.axes_of_mean(theta, X.shape[-1]))
        return with_known(noise.expand(*draws, 1), noise_sd)

    def noisy_steps(
        self, theta: Theta, X: Tensor, noise_sd: Tensor | None, backwards: bool = False
    ) -> Steps:
        """Return the process at rows of X with their noise."""
        return self.process.steps(theta, X, self.noise_at(theta, X, noise_sd), backwards)

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        noise_sd: Tensor | None = None,
        total: int | None = None,
    ) -> Tensor:
        """Run the Pyro program of the model at times X [n, 1]; see ``GP.model``."""
        if total is not None and total != len(X):
            raise mini_batch(self, X, total, "use the full batch, which costs O(n)")
        if noise_sd is not None:
            check_aligned(noise_sd, X)
        theta = draw(self.sites_at(X.shape[-1]), X)
        loc = self.mean_at(theta, X).expand(len(X))
        if self.by_matrix(*X.shape):
            sites, own = under("kernel", self.sites_at(X.shape[-1])), under("kernel", theta)
            noise = self.noise_at(theta, X, noise_sd)
            joint = gp_marginal(self.process.kernel, sites, own, X, loc, noise)
        else:
            joint = StateSpaceMarginal(loc, self.noisy_steps(theta, X, noise_sd))
        if self.log:
            joint = dist.TransformedDistribution(joint, [ExpTransform()])
        return pyro.sample("y", joint, obs=y)

    # -- given the training rows ------------------------------------------------------------------

    def given_rows(
        self, theta: Theta, train: Dataset, kept: ResultCache | None = None
    ) -> GivenRows:
        """Return the process given the training rows, under each draw of theta."""
        drawn, params = split_params(self.sites_at(train.d), theta)
        count, process, y = number_of_draws(drawn), self.process, self.of_f(train).y

        def chunks(m: int) -> Iterator[tuple[slice, Theta]]:
            """Yield the slices of the draws whose matrices fit into ``MEMORY_BUDGET``."""
            numbers = 12 * process.width(train.d) ** 2 * (train.n + m)
            size = max(1, MEMORY_BUDGET // (train.X.element_size() * numbers))
            for i in range(0, count, size):
                chunk = slice(i, min(i + size, count))
                yield chunk, {**params, **{name: value[chunk] for name, value in drawn.items()}}

        def conditioned(part: Theta, backwards: bool) -> Smoothed:
            steps = self.noisy_steps(part, train.X, train.noise_sd, backwards)
            return smoothed(steps, y - self.mean_at(part, train.X))

        return GivenRows(process, self.mean_at, theta, train, count, chunks, conditioned, kept)

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
        """Return the predictive distribution of y at times X [m, 1]; see ``Model.predict``.

        The times lie before, between, at or after the training rows, in any order. The distribution
        is a Normal, or a MultivariateNormal if ``joint``; with ``log`` it is that of log y.
        """
        if self.by_matrix(train.n, train.d):
            options = {"joint": joint, "noise_sd": noise_sd, "kept": kept}
            return self._of_y(self._of_matrix.predict(theta, X, self.of_f(train), **options))
        given = self.given_rows(theta, train, kept)
        mean, spread = given.joint(X) if joint else given.marginal(X)
        return self._of_y(with_noise(mean, spread, self.noise_at(theta, X, noise_sd), joint))

    def _of_y(self, of_f: Distribution) -> Distribution:
        """Return the distribution of y from that of f plus noise, which is Gaussian."""
        if not self.log:
            return of_f
        if isinstance(of_f, dist.Normal):
            return dist.LogNormal(of_f.loc, of_f.scale)
        raise NotApplicable(
            "one row at a time of StateSpaceGP of log y",
            "joint=True",
            "leave out joint, or take exp of functions of posterior.pathwise",
        )

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        if self.by_matrix(train.n, train.d):
            return self._of_matrix.latent(theta, X, self.of_f(train), kept)
        mean, variance = self.given_rows(theta, train, kept).marginal(X)
        return dist.Normal(mean, variance.sqrt())

    def gaussian(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the joint Gaussian distribution of y and f at the first draw; see ``GP``."""
        one = first_draw(self.sites_at(X.shape[-1]), theta)
        process, mean = self.process, self.mean_at(one, X)
        variance = process.variances(one, X) + self.noise_at(one, X, noise_sd)
        noise = self.noise_at(one, train.X, train.noise_sd)
        C = add_diagonal(process.covariance(one, train.X), noise)
        residual = train.y - self.mean_at(one, train.X)
        return C, residual, process.covariance(one, train.X, X), variance, mean.expand(len(X))

    def pathwise(
        self,
        theta: Theta,
        train: Dataset,
        samples: int,
        features: int | None,
        generator: torch.Generator,
    ) -> Callable[[Tensor], Tensor]:
        """Draw functions from the posterior, each at a random draw of theta; see ``GP.pathwise``.

        They are exact, whatever the number of ``features``.
        """
        drawn, params = split_params(self.sites_at(train.d), theta)
        chosen = torch.randint(
            number_of_draws(drawn), (samples,), generator=generator, device="cpu"
        )
        paths: list[tuple[Theta, _DrawnFunctions]] = []
        y = self.of_f(train).y
        for i in chosen.unique().tolist():
            one = {**params, **{name: value[i] for name, value in drawn.items()}}
            settings = Draw(int((chosen == i).sum()), 0, generator, train.X)
            steps = self.noisy_steps(one, train.X, train.noise_sd)
            states = _states_at_rows(steps, y - self.mean_at(one, train.X), settings)
            space = self.process.space(one, train.X)
            paths.append((one, _DrawnFunctions(space, steps.times, states, settings)))

        def functions(X: Tensor) -> Tensor:
            H = self.process.observation(X)
            return torch.cat([self.mean_at(one, X) + path(X[:, 0], H) for one, path in paths])

        return functions

    def components(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        if self.by_matrix(train.n, train.d):
            return self._of_matrix.components(theta, X, self.of_f(train))
        return super().components(theta, X, train)

    def parts_by_role(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        if self.by_matrix(train.n, train.d):
            return self._of_matrix.parts_by_role(theta, X, self.of_f(train))
        return super().parts_by_role(theta, X, train)

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        Its mean is y_i - u_i / d_i and its variance 1 / d_i, with u = C^-1 (y - mean) and
        d = diag C^-1. Rasmussen & Williams (2006), equations 5.10 to 5.12.
        """
        if self.by_matrix(train.n, train.d):
            return self._of_y(self._of_matrix.loo(theta, self.of_f(train)))
        back = torch.argsort(torch.sort(train.X[:, 0], stable=True).indices)
        means, variances = [], []
        given, y = self.given_rows(theta, train), self.of_f(train).y
        for chunk, part in given.chunks(0):
            found = given.smoothed(chunk, part)
            u, d = found.u[..., back], found.d[..., back]
            shape = (chunk.stop - chunk.start, train.n)
            means.append((y - u / d).expand(shape))
            variances.append((1 / d).expand(shape))
        return self._of_y(dist.Normal(torch.cat(means), torch.cat(variances).sqrt()))

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data).log_prob(data.y)}

    # -- further rows: the filter goes on from the last state -------------------------------------

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        X, y = new.X[old.n :], self.of_f(new).y[old.n :]
        sd = None if new.noise_sd is None else new.noise_sd[old.n :]
        if not 0 < len(X) <= FEW or bool(X[:, 0].min() < old.X[:, 0].max()):
            return
        time, m, P = self.given_rows(theta, old, kept).end()
        residual = y - self.mean_at(theta, X)
        noise = self.noise_at(theta, X, sd)
        start = (m, P, time, self.process.space(theta, X))
        end = onward(*start, X[:, 0], residual, noise, columns_of(X)).end()
        into.get("end", lambda: end, theta)

    def one_step_ahead(
        self, theta: Theta, train: Dataset, new: Dataset, kept: ResultCache
    ) -> Distribution:
        X, last = new.X, train.X[:, 0].max()
        early = (X[:, 0] < last).nonzero()[:, 0].tolist()
        if early:
            do = "pass later rows, or use loo or predict for the others"
            got = f"an earlier time in {listed(early, 'row')}"
            raise DataError("times that are not before the last training row", got, do)
        given, y = self.given_rows(theta, train, kept), self.of_f(new).y
        time, m, P = given.end()
        means, variances = [], []
        for chunk, part in given.chunks(len(X)):
            noise = self.noise_at(part, X, new.noise_sd)
            level = self.mean_at(part, X)
            start = (m[..., chunk], P[..., chunk], time, self.process.space(part, X))
            found = onward(*start, X[:, 0], y - level, noise, columns_of(X))
            mean, variance = found.moments()
            means.append(mean + level)
            variances.append(variance + noise)
        return self._of_y(dist.Normal(torch.cat(means), torch.cat(variances).sqrt()))


def _states_at_rows(steps: Steps, residual: Tensor, draw: Draw) -> Tensor:
    """Return draws of the states at the rows in order of time, [s, samples, n].

    A draw of the prior is corrected by the smoothed difference from the data. Durbin & Koopman
    (2002).

    Args:
        steps: The process at the rows, without a batch.
        residual: The difference y - mean [n], in the order of the rows.
        draw: The number of functions and the random generator.
    """
    width, size, k = len(steps.F), steps.F.shape[-2:], draw.samples

    def wide(M: Tensor) -> Tensor:
        return M.unsqueeze(M.ndim - 2).expand(*M.shape[:-2], k, *M.shape[-2:])

    F, Q = wide(steps.F), wide(steps.Q)
    P0 = steps.P0[..., None].expand(width, width, k)
    R = steps.R.expand(k, *size)
    prior = simulated(F, Q, P0, draw.normal(width, k), draw.normal(width, k, *size))
    y = steps.observed.of(prior) + R.sqrt() * draw.normal(k, *size)
    rest = steps.observed.seen * (steps.in_order(residual) - y)
    filtered, back = passes(F, Q, P0, R, rest, steps.observed)
    correction = [
        m + times_vector(P, r) for m, P, r in zip(filtered.m, filtered.P, back.r, strict=True)
    ]
    return in_rows(prior + torch.stack(correction, -2), len(steps.times))


class _DrawnFunctions:
    """Functions whose states are known at some times, and drawn at others when they are asked for.

    Given the states at the known times on both sides, the state between depends on nothing else.
    A time that is asked for again keeps its state. The record grows.

    Args:
        space: The process.
        times: In order, [n]; of equal ones the last counts.
        states: [s, samples, n].
        draw: The number of functions and the random generator.
    """

    def __init__(self, space: StateSpace, times: Tensor, states: Tensor, draw: Draw) -> None:
        last = torch.cat([times.diff() > 0, torch.ones_like(times[:1], dtype=torch.bool)])
        self.space, self.draw = space, draw
        self.times, self.states = times[last], states[..., last]

    def __call__(self, t: Tensor, H: Tensor) -> Tensor:
        """Return the functions H'x at times t [m], [samples, m], for weights H [s, m]."""
        t = t.contiguous()
        new = torch.unique(t)
        while True:
            place = torch.searchsorted(self.times, new)
            known = self.times[place.clamp_max(len(self.times) - 1)] == new
            new, place = new[~known], place[~known]
            if not len(new):
                break
            # the middle one of the new times in each gap, so that few rounds suffice
            _, counts = torch.unique_consecutive(place, return_counts=True)
            self._extend(new[counts.cumsum(0) - counts + counts // 2])
        states = self.states[..., torch.searchsorted(self.times, t)]
        return (states * H[:, None]).sum(0)

    def _extend(self, t: Tensor) -> None:
        """Draw the states at times t [m], each in a gap of its own between known times."""
        n, place = len(self.times), torch.searchsorted(self.times, t)
        left, right = (place - 1).clamp_min(0), place.clamp_max(n - 1)
        F, Q = self.space.transition((t - self.times[left]).clamp_min(0.0))
        begun = place > 0
        P = torch.where(begun, Q, self.space.covariance(t))
        before = self.states[..., left]
        m = torch.where(begun, times_vector(F[:, :, None], before), 0.0)
        F, Q = self.space.transition((self.times[right] - t).clamp_min(0.0))
        FP = product(F, P)
        gain = product(FP.transpose(0, 1), _pseudo_inverse(product_with_transpose(FP, F) + Q))
        gain = torch.where(place < n, gain, 0.0)
        rest = self.states[..., right] - times_vector(F[:, :, None], m)
        m = m + times_vector(gain[:, :, None], rest)
        spread = P - product(gain, FP)
        z = self.draw.normal(len(P), self.draw.samples, len(t))
        x = m + times_vector(root(0.5 * (spread + spread.transpose(0, 1)))[:, :, None], z)
        times, order = torch.sort(torch.cat([self.times, t]))
        self.times, self.states = times, torch.cat([self.states, x], -1)[..., order]


def _pseudo_inverse(S: Tensor) -> Tensor:
    """Return the inverses of covariances [s, s, *many] where they have variance, 0 elsewhere."""
    sd = S.diagonal(dim1=0, dim2=1).movedim(-1, 0).clamp_min(0.0).sqrt()
    by = torch.where(sd > 0, sd, torch.ones_like(sd))
    values, vectors = torch.linalg.eigh((S / by[:, None] / by).movedim((0, 1), (-2, -1)))
    kept = values > NEGLIGIBLE * values.amax(-1, keepdim=True)
    inverted = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    inverse = (vectors * inverted.unsqueeze(-2)) @ vectors.mT
    return inverse.movedim((-2, -1), (0, 1)) / by[:, None] / by


show_latent(StateSpaceGP)
