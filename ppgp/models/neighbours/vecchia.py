"""Vecchia's approximation of a Gaussian process: each row given its nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ...capabilities import FollowsFit, LatentFunction, LeaveOneOut, WarmStart
from ...data.dataset import Dataset, Scaler
from ...data.training_data import Batch, Rows
from ...errors import SettingError
from ...kernels import Kernel, Matern
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...likelihoods import Likelihood
from ...numerics.cholesky import add_diagonal, at_least_rounding, cholesky
from ...priors import LogNormal, Param, PriorLike, Site, prefixed, rescaled, site, under
from ...runtime.result_cache import ResultCache
from ...runtime.seeding import permutation
from ...runtime.team import ALONE, Team
from ..advice.memory_checks import check_memory_of_predictions
from ..base import TakesLikelihood, broken_network, mini_batch, show_latent
from ..exact.drift import (
    Drift,
    basis,
    check_determined,
    checked,
    coordinate_columns,
    coordinates,
    places,
)
from ..exact.gp import GP
from ..means import MeanLike, UserMean, WithMean, rows_of_mean
from ..noise import check_aligned, refuse_duplicate_rows, with_known, with_noise
from ..sites import Theta, draw, first_draw, medians, one_by_one
from ..units import power
from .latent_vecchia import with_likelihood
from .nearest_rows import Lengths, NearestRows, nearest_rows
from .weights import (
    ROWS_IN_ONE_PASS,
    Law,
    Sets,
    Whitened,
    part_of_new_rows,
    solve_earlier,
)

SUBSET_ROWS = 1024
PLACES_AT_ONCE = 2048


@dataclass(frozen=True, repr=False)
class Vecchia(TakesLikelihood, WithMean, LatentFunction, LeaveOneOut, WarmStart, FollowsFit):
    """Gaussian process of many rows in few columns: each row given its nearest earlier rows.

    With the rows in an order, log p(y) is the sum of log p(y_i given the ``neighbours`` rows
    nearest to row i among those before it), where y follows the Gaussian process
    y ~ N(F beta, K + noise I) with F [n, k] and K [n, n], which is never formed. The cost is
    O(n m^3) time and O(n m) memory. The sum is the log density of a Gaussian vector, and with
    m = n - 1 it is that of the process itself. It suits 2 to 10 columns and 10^4 to 10^7 rows; the
    error grows with the smoothness of the kernel and, where there is noise, with the lengthscale,
    and falls with m. Vecchia (1988); Datta et al. (2016); Katzfuss & Guinness (2021).

    Neighbours are nearest in columns divided by how far the kernel correlates along each. ``fit``
    with MAP or Laplace searches them again if the fitted lengthscales of two columns differ by a
    factor of 2 from those of the search; other methods warn.

    With drift "none" methods take mini-batches (``batch_size``): each row of a batch comes with its
    neighbours among all rows.

    Args:
        kernel: Any kernel of ``ppgp.kernels``, or a composition.
        noise: Prior or number for the noise variance (a number is in the square of the units of y);
            0 means no noise.
        neighbours: How many earlier rows each row depends on (m), and how many training rows a
            prediction; None: 30, or all if there are fewer.
        order: The order of the rows: "random", or "maximin", in which each row is far from those
            before it.
        drift: The functions F of the trend, whose coefficients beta have a flat prior and are
            integrated out, as in ``Kriging``: None, a constant, one for each output where the
            kernel has a ``Coregionalisation``; "constant", one for all; a degree for a polynomial
            in the coordinates; columns of X, which are then no coordinates; or "none" for the
            known ``mean``.
        mean: With drift "none": number, prior, ``LinearMean`` or function of X, see ``GP``; None:
            the mean of the training rows.
        seed: Seed of the order.
        likelihood: The distribution of y given f in place of Gaussian noise, such as Poisson(). The
            result is a ``LatentVecchia``, whose f has a ``mean`` in place of a drift. None:
            Gaussian noise.
        lengths: Set by ``prepare``: the length of each coordinate by which neighbours are nearest,
            or the matrix P of a metric.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    With a likelihood, ``latent="laplace"`` says how f is integrated out; see ``LatentVecchia``.

    Raises:
        SettingError: If kernel or likelihood is something else, for a negative noise, an option
            that is none of these, ``latent`` without a likelihood, or a ``mean`` beside a drift;
            from ``fit``, for as many neighbours as rows, or more.
        NotApplicable: With a likelihood, as ``LatentVecchia``.
        DataError: From ``fit``, for duplicate rows under a noise of exactly 0, or a drift that the
            rows do not determine.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, models
        >>> generator = torch.Generator().manual_seed(0)
        >>> X = torch.rand(80, 2, generator=generator, dtype=torch.float64)
        >>> data = ppgp.Dataset(X, torch.sin(6 * X[:, 0]) + X[:, 1])
        >>> fixed = {"kernel": kernels.Matern(1.5, 1.0, 0.5), "noise": 0.01, "mean": 0.0}
        >>> options = {"how": inference.MAP(), "progress": False, "standardise": False}
        >>> exact = ppgp.fit(models.GP(**fixed), data, **options)
        >>> def error(m):
        ...     model = models.Vecchia(**fixed, neighbours=m, drift="none")
        ...     return abs(ppgp.fit(model, data, **options).log_evidence - exact.log_evidence)
        >>> error(79) < 1e-6, error(40) < error(10)
        (True, True)
    """

    kernel: Kernel = field(default_factory=lambda: Matern(1.5))
    noise: PriorLike = LogNormal(-2.0, 1.0)
    neighbours: int | None = None
    order: str = "random"
    drift: Drift = None
    mean: MeanLike | None = None
    seed: int = 0
    likelihood: Likelihood | None = field(default=None, repr=False, kw_only=True)
    lengths: Lengths | None = field(default=None, repr=False, kw_only=True)
    standardised: bool = field(default=False, kw_only=True)
    known_noise = True
    sampled_rows = 500
    joint_rows = True
    keeps_factor = True
    sums_over_team = True
    rows_on_every_rank = True
    with_likelihood = staticmethod(with_likelihood)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)
        object.__setattr__(self, "drift", checked(self.drift))
        if callable(self.drift):
            raise SettingError(
                "a degree or columns of X as drift of Vecchia",
                "a function",
                "compute its values as columns of X, and name these: drift=(2, 3)",
            )
        self._nearest.check()
        if self.drift != "none" and self.mean not in (None, 0.0):
            got = f"mean={self.mean!r} and drift={self.drift!r}"
            raise SettingError('a known mean with drift="none"', got, "drop one")

    @cached_property
    def _nearest(self) -> NearestRows:
        """The neighbours of each row; they are searched once for the same rows."""
        return NearestRows(
            self.kernel, self.neighbours, self.order, self.seed, self.lengths, self.drift
        )

    def covariance_columns(self, d: int) -> list[int]:
        return coordinate_columns(self.drift, d)

    def sites(self, d: int) -> dict[str, Site | Param]:
        sites = {
            **prefixed("kernel", self.kernel.sites(coordinates(self.drift, d))),
            "noise": site("noise", self.noise, positive=True, zero=True),
        }
        if self.drift == "none":
            sites |= self.mean_of(d).sites(d)
        return sites

    def work(self, n: int, d: int) -> float:
        return float(n) * self._nearest.number**3 + super().work(n, d)

    def prepare(self, data: Dataset) -> Vecchia:
        """Return the recipe with the lengths by which rows are near, and with their mean.

        Raises:
            SettingError: For as many neighbours as rows, or more.
            DataError: For duplicate rows under a noise of exactly 0, whose covariance is singular,
                or a drift that the rows do not determine.
            NumericalError: For a network whose units are all dead or saturated at the start.
        """
        where = places(self.drift, data.X)
        sites = self.sites_at(data.d)
        if broken := self.kernel.check_fit({}, where):
            raise broken_network(broken[0], where)
        check_determined(self.drift, data.X, None, self.kernel.output_columns())
        self._nearest.refuse_too_many(data.n)
        hyper = under("kernel", medians(sites, where, 0))
        if self.noise == 0:
            nugget = self.kernel.nugget(hyper, where)
            refuse_duplicate_rows(where, data.noise_sd, nugget, "different rows of X", "noise")
        mean = self.mean
        if self.drift == "none":
            mean = self.mean_for(data)
        return replace(self, mean=mean, lengths=self._nearest.lengths_at(hyper, where))

    def in_units(self, scaler: Scaler) -> Vecchia:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        mean = self.mean_in_units(scaler)
        kernel = self.kernel.in_units(self._units(scaler))
        return replace(self, kernel=kernel, noise=noise, mean=mean)

    def _units(self, scaler: Scaler) -> Units:
        units = Units.of(scaler)
        if isinstance(self.drift, tuple):
            d = len(scaler.x_mean)
            return units.columns(tuple(c for c in range(d) if c not in self.drift))
        return units

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        of_kernel = prefixed("kernel", self.kernel.factors(self._units(scaler)))
        return self.hyperparameters_of_data(draws, of_kernel, scaler)

    def chunked(self, data: Dataset) -> bool:
        """Return whether a graph would not serve.

        The gradient of many rows computes the covariances of each part anew, and that of a team
        adds up parts of its processes.
        """
        many = data.n > ROWS_IN_ONE_PASS or not data.workers.alone
        return many or isinstance(self.mean_function, UserMean)

    # -- neighbours that follow the fit, and the start of a search ----------------------------

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the neighbours of rows, and about a network."""
        one = first_draw(self.sites_at(data.d), theta)
        law = self._law(one, data.X, self._noise_of_rows(one, data.X, data.noise_sd))
        few = self._nearest.too_few(law, data.X)
        return [*self._nearest.notes(theta, data.X), *few]

    def outdated(self, theta: Theta, data: Dataset) -> bool:
        """Return whether lengthscales relative to one another have changed by more than 2."""
        return self._nearest.outdated(theta, data.X)

    def reselected(self, theta: Theta, data: Dataset) -> Vecchia:
        """Return the recipe with neighbours that are nearest at theta, for another fit."""
        lengths = self._nearest.lengths_of(under("kernel", theta), places(self.drift, data.X))
        return replace(self, lengths=lengths).made_from(self, self.made_for)

    def subset_model(self, data: Dataset) -> tuple[GP, Dataset] | None:
        """Return an exact GP and a random subset of the rows; None for few rows or a network."""
        if isinstance(self.drift, tuple) or self._nearest.deep(data.d) or data.n < 2 * SUBSET_ROWS:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        subset = permutation(generator, data.n)[:SUBSET_ROWS].to(data.X.device)
        mean = self.mean if self.drift == "none" else None
        return GP(self.kernel, self.noise, mean), data.rows(subset)

    def warm_start(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the hyperparameters of the subset model."""
        return {name: value for name, value in theta.items() if name in self.sites_at(data.d)}

    # -- the program --------------------------------------------------------------------------

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        noise_sd: Tensor | None = None,
        total: int | None = None,
        team: Team = ALONE,
    ) -> Tensor:
        """Run the Pyro program of the model; see ``GP.model``."""
        if X.ndim == 3:  # each row after its neighbours, from ``batch``
            theta = draw(self.sites_at(X.shape[-1]), X)
            with pyro.plate("rows", total or len(X), subsample=X):
                return pyro.sample("y", self._of_batch(theta, X, noise_sd), obs=y)
        do = 'use the full batch (its cost grows linearly), or drift="none" and a method of ppgp'
        if total is not None and total != len(X):
            raise mini_batch(self, X, total, do)
        if noise_sd is not None:
            check_aligned(noise_sd, X)
        theta = draw(self.sites_at(X.shape[-1]), X)
        return pyro.sample("y", self._marginal(theta, X, noise_sd, team), obs=y)

    def batch(self, data: Dataset, rows: Rows) -> tuple[Tensor, ...]:
        """Return X [*b, k, d], y [*b, k] and columns of rows [*b], each after its neighbours.

        A neighbour that a row lacks has y = inf. A drift is determined by all rows together, so
        that the rows come without neighbours, and ``model`` refuses them.
        """
        if self.drift != "none" or isinstance(rows, Batch):
            return data.tables(rows)
        sets = self._nearest.sets(data.X)
        place = torch.empty_like(sets.order)
        place[sets.order] = torch.arange(data.n, device=place.device)
        members = sets.members[place[rows.to(place.device)]].long()
        X, y, *others = data.tables(members.clamp_min(0))
        return X, torch.where(members < 0, torch.inf, y), *others

    def _centre(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the known mean at rows X [*b, n, d] of one draw; 0 where there is a drift."""
        return self.mean_at(theta, X) if self.drift == "none" else X.new_zeros(1)

    def _noise_of_rows(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the error variance of each row [n] at one draw."""
        return with_known(self.value(theta, "noise", X).expand(len(X)), noise_sd)

    def _functions(self, X: Tensor, train: Tensor) -> Tensor:
        """Return the functions of the drift at X [*b, n, d], [*b, n, p]; see ``basis``."""
        return basis(self.drift, X, train, self.kernel.output_columns())

    def _marginal(
        self, theta: Theta, X: Tensor, noise_sd: Tensor | None, team: Team = ALONE
    ) -> NeighbourMarginal:
        """Return the distribution of y at the rows of X, at one draw."""
        return NeighbourMarginal(
            self._centre(theta, X).expand(len(X)),
            self._law(theta, X, self._noise_of_rows(theta, X, noise_sd)),
            self._nearest.sets(X),
            self._functions(X, X),
            team,
        )

    def _law(self, theta: Theta, X: Tensor, noise: Tensor) -> Law:
        """Return the covariances of y at the rows of X, whose error variances are given [n]."""
        kernel, hyper, (where,) = self.kernel.to_feature_space(
            under("kernel", theta), places(self.drift, X)
        )
        return Law(kernel, hyper, kernel.diag(hyper, where) + noise, where)

    def _of_batch(
        self, theta: Theta, X: Tensor, noise_sd: Tensor | None
    ) -> ConditionalOnNeighbours:
        """Return the distribution of rows given their neighbours, X [b, k, d], at one draw."""
        rows = X.flatten(0, 1)
        known = None if noise_sd is None else noise_sd.flatten()
        law = self._law(theta, rows, self._noise_of_rows(theta, rows, known))
        return ConditionalOnNeighbours(self._centre(theta, X), law, len(X))

    # -- predictions --------------------------------------------------------------------------

    def training_factor(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        """Return beta [p] and the root R [p, p] of its precision R'R, at one draw."""
        if self.drift == "none":
            return train.X.new_zeros(0), train.X.new_zeros(0, 0)
        of_rows = self._marginal(theta, train.X, train.noise_sd)
        Z = torch.cat([(train.y - of_rows.loc)[:, None], of_rows.F], 1)
        r, F = of_rows.whitened(Z).values.split([1, Z.shape[1] - 1], 1)
        Q, R = torch.linalg.qr(F)
        return torch.linalg.solve_triangular(R, Q.mT @ r, upper=True).squeeze(-1), R

    def _conditional(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance of f at X, [draw, m] each."""
        kept = kept or ResultCache(limit=0)
        draws = one_by_one(self.sites_at(train.d), theta)
        check_memory_of_predictions(len(draws), len(X), X)
        number = self._nearest.number_for(train.n)
        near = nearest_rows(self._nearest.scaled(train.X), self._nearest.scaled(X), number)
        means, variances = X.new_empty(len(draws), len(X)), X.new_empty(len(draws), len(X))
        for k, one in enumerate(draws):
            beta, R = kept.get((k, k + 1), partial(self.training_factor, one, train), one)
            residual, centre = train.y - self._centre(one, train.X), self._centre(one, X)
            for i in range(0, len(X), PLACES_AT_ONCE):
                at = slice(i, i + PLACES_AT_ONCE)
                moments = self._from_nearest(one, X[at], near[at], train, residual, beta, R)
                means[k, at], variances[k, at] = moments[0] + rows_of_mean(centre, at), moments[1]
        return means, variances

    def _from_nearest(
        self,
        theta: Theta,
        X: Tensor,
        near: Tensor,
        train: Dataset,
        residual: Tensor,
        beta: Tensor,
        R: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the moments [m] of f less its known mean at places X, from rows ``near`` [m, k].

        This is universal kriging with the covariance of beta from all rows. Cressie (1993),
        section 3.4.
        """
        hyper = under("kernel", theta)
        rows, there = places(self.drift, train.X)[near], places(self.drift, X)
        noise = self._noise_of_rows(theta, train.X, train.noise_sd)[near]
        L = cholesky(add_diagonal(self.kernel(hyper, rows), noise), "covariance of nearest rows")
        F, new = self._functions(train.X, train.X)[near], self._functions(X, train.X)
        rest = residual[near] - F @ beta
        K = self.kernel(hyper, rows, there[:, None])
        right = torch.cat([K, rest[..., None], F], -1)
        V, w, H = torch.linalg.solve_triangular(L, right, upper=False).split([1, 1, len(beta)], -1)
        mean = (V * w).sum((-2, -1)) + new @ beta
        prior = self.kernel.diag(hyper, there)
        variance = prior - V.square().sum((-2, -1))
        variance = at_least_rounding(variance, prior)
        S = new - (V.mT @ H).squeeze(-2)
        T = torch.linalg.solve_triangular(R.mT, S.mT, upper=False)
        return mean, variance + T.square().sum(0)

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
        """Return the predictive distribution of y at X, each from its nearest training rows.

        It is a Normal, or a MultivariateNormal if ``joint``: each row then also depends on the new
        rows before it that are among its nearest. See ``Model.predict``.
        """
        if joint:
            return self._joint(theta, X, train, noise_sd)
        mean, variance = self._conditional(theta, X, train, kept)
        draws = one_by_one(self.sites_at(train.d), theta)
        noise = torch.stack([self._noise_of_rows(one, X, noise_sd) for one in draws])
        return with_noise(mean, variance, noise, joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        mean, variance = self._conditional(theta, X, train, kept)
        return dist.Normal(mean, variance.sqrt_())

    def _joint(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None
    ) -> Distribution:
        """Return the joint distribution of y at X, whose rows follow the training rows."""
        draws = one_by_one(self.sites_at(train.d), theta)
        check_memory_of_predictions(len(draws), len(X), X, joint=True)
        members = self._nearest.members_after(train.X, X)
        every = torch.cat([train.X, X])
        n, m = train.n, len(X)
        means, roots = [], []
        for one in draws:
            beta, R = self.training_factor(one, train)
            noise = torch.cat(
                [
                    self._noise_of_rows(one, train.X, train.noise_sd),
                    self._noise_of_rows(one, X, noise_sd),
                ]
            )
            rows = self._law(one, every, noise).rows_of_root(members)
            F = self._functions(every, train.X)
            residual = train.y - self._centre(one, train.X) - F[:n] @ beta
            known = torch.cat([torch.zeros_like(every[:, :1]), F], 1)
            known[:n, 0] = residual
            of_known = (rows[..., None] * known[members.long()]).sum(1)
            own = part_of_new_rows(rows, members, n)
            solved = torch.linalg.solve_triangular(own, of_known, upper=False)
            eye = torch.eye(m, dtype=X.dtype, device=X.device)
            root = torch.linalg.solve_triangular(own, eye, upper=False)
            if len(beta):
                S = torch.linalg.solve_triangular(R.mT, solved[:, 1:].mT, upper=False).mT
                root = cholesky(root @ root.mT + S @ S.mT, "predictive covariance")
            means.append(F[n:] @ beta + self._centre(one, X) - solved[:, 0])
            roots.append(root)
        return dist.MultivariateNormal(torch.stack(means), scale_tril=torch.stack(roots))

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        Its mean is y_i - (Q r)_i / Q_ii and its variance 1 / Q_ii, where Q is the precision U'U of
        the approximation without the trend. Rasmussen & Williams (2006), equations 5.10 to 5.12;
        Dubrule (1983).
        """
        means, variances = [], []
        for one in one_by_one(self.sites_at(train.d), theta):
            of_rows = self._marginal(one, train.X, train.noise_sd)
            Z = torch.cat([(train.y - of_rows.loc)[:, None], of_rows.F], 1)
            w = of_rows.weights().T
            rows, members = w / w[:, -1:].sqrt(), of_rows.sets.members.clamp_min(0).long()
            white = (rows[..., None] * Z[members]).sum(1)

            def back(values: Tensor, rows: Tensor = rows, members: Tensor = members) -> Tensor:
                """Return U' values."""
                spread = rows[..., None] * values[:, None]
                start = values.new_zeros(train.n, values.shape[1])
                return start.index_add(0, members.flatten(), spread.flatten(0, 1))

            diagonal = torch.zeros_like(train.y)
            diagonal = diagonal.index_add(0, members.flatten(), rows.square().flatten())
            Q, _ = torch.linalg.qr(white[:, 1:])
            residual = white[:, :1] - Q @ (Q.mT @ white[:, :1])
            a = back(residual).squeeze(-1)
            # a row that alone determines a coefficient has d = 0 up to rounding: almost any value
            d = at_least_rounding(diagonal - back(Q).square().sum(-1), diagonal)
            means.append(train.y - a / d)
            variances.append(1 / d)
        return dist.Normal(torch.stack(means), torch.stack(variances).sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data).log_prob(data.y)}


show_latent(Vecchia)


class NeighbourMarginal(dist.TorchDistribution):
    """loc + F beta + N(0, C), where each row depends on the nearest rows before it alone.

    The prior of beta is flat, and beta is integrated out. The distribution is improper along the
    columns of F; a sample has beta = 0.

    Args:
        loc: [n], the mean without the trend.
        law: The covariances of the rows.
        sets: The rows that each depends on.
        F: [n, p], the functions of the trend.
        team: The processes that have the same rows, each of which computes a part of a density.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"loc": constraints.real_vector}
    support: Any = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        law: Law,
        sets: Sets,
        F: Tensor,
        team: Team = ALONE,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.law, self.sets, self.F, self.team = loc, law, sets, F, team
        super().__init__(torch.Size(), loc.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> NeighbourMarginal:
        if len(batch_shape):
            raise NotImplementedError("a distribution of one draw of the hyperparameters")
        return self

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.law.variance

    def weights(self) -> Tensor:
        """Return the weights of each row and of those that it depends on, [k, n]."""
        return self.law.weights(self.sets)

    def whitened(self, Z: Tensor) -> Whitened:
        """Return columns Z [n, q] multiplied by the root U of the precision."""
        return self.law.whitened(Z, self.sets)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        with torch.no_grad():
            drawn = solve_earlier(self.weights(), self.sets, noise.reshape(-1, shape[-1]).T)
        return self.loc + drawn.T.reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        if value.ndim > 1:
            return torch.stack([self.log_prob(one) for one in value])
        r, own = value - self.loc, self.sets.share_of(self.team)
        if not self.F.shape[1]:
            return self.team.differentiable_sum(self.law.log_density(r, own))
        whitened = self.law.whitened(torch.cat([r[:, None], self.F], 1), own)
        return whitened.log_density(self.team)


class ConditionalOnNeighbours(dist.TorchDistribution):
    """The last of each k rows given the others, as the distribution of k values of each.

    Args:
        loc: The mean of every row.
        law: The covariances of b k rows, the k of each of b rows one after another.
        batch: The batch shape b.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"loc": constraints.real}
    support: Any = constraints.real_vector

    def __init__(
        self, loc: Tensor, law: Law, batch: int, validate_args: bool | None = None
    ) -> None:
        self.loc, self.law = loc, law
        event = torch.Size([len(law.X) // batch])
        super().__init__(torch.Size([batch]), event, validate_args=validate_args)

    def expand(
        self, batch_shape: Sequence[int], _instance: object = None
    ) -> ConditionalOnNeighbours:
        if tuple(batch_shape) != tuple(self.batch_shape):
            raise NotImplementedError("a distribution of the rows of one batch")
        return self

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log densities [b] of values [b, k]; inf: the row is absent."""
        return self.law.log_density_of_batch(value - self.loc)
