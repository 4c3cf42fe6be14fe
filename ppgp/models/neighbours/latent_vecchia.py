"""A Gaussian process of many rows with any likelihood, each row given its nearest earlier rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyro
import torch
from torch import Tensor

from ...capabilities import FollowsFit, WarmStart
from ...data.dataset import Dataset, Scaler
from ...errors import NotApplicable, SettingError
from ...kernels import Kernel, Matern
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...likelihoods import Bernoulli, Likelihood
from ...likelihoods.joint_rows import LatentRows, LikelihoodRows
from ...priors import Param, PriorLike, Site, prefixed, under
from ...runtime.result_cache import ResultCache
from ...runtime.seeding import permutation
from ..advice.advice import instead_of
from ..advice.memory_checks import check_memory_of_predictions, check_memory_of_rows
from ..base import broken_network, mini_batch
from ..exact.latent_gp import LatentGP
from ..exact.latent_model import LatentModel, check_latent
from ..means import MeanLike
from ..sites import Theta, draw, first_draw, medians, one_by_one
from .nearest_rows import Lengths, NearestRows, nearest_rows
from .sparse_laplace import MOST_DENSE, MOST_DENSE_COVARIANCE, SparseLaplace
from .weights import Law, Sets, part_of_new_rows, solve_earlier

SUBSET_ROWS = 512
ROWS_AT_ONCE = 1024
PAIRS_AT_ONCE = 2**19  # of rows of the sets of new rows
SEARCH = 300  # products in the search for one mode and its determinant, about
NUMBERS_A_ROW = 2_500.0  # that an estimated determinant and its slopes hold, about
#: relative to the variance of f, added where the distribution of f has no noise, so that rows that
#: coincide have a conditional variance above 0; in float32, above the rounding of a solve
JITTER = {torch.float64: 1e-10, torch.float32: 1e-5}


@dataclass(frozen=True, repr=False)
class LatentVecchia(LatentModel, WarmStart, FollowsFit):
    """GP of any likelihood and many rows: f by Vecchia's approximation, and y_i given f_i.

    ``Vecchia(kernel, likelihood=..., latent="laplace")`` makes it. f ~ N(mean, (U'U)^-1) at the
    rows, where each f_i given the rows before it depends on the nearest ``neighbours`` of them; see
    ``Vecchia``. f is then Gaussian around its mode given y, as in ``LatentGP`` with "laplace", and
    with m = n - 1 it is that model. f [n] is in the units of the link, such as log odds for
    Bernoulli. Kuendig & Sigrist (2025); Zilber & Katzfuss (2021).

    Up to 500 rows the evidence and its slopes are exact, by dense algebra. With more, conjugate
    gradients find the mode, and log|I + K W| is estimated from 16 fixed probes: one seed, one
    value, and the slopes are those of this value. The standard error is the entry
    ``log_density_error`` of the stats of a fit. The covariance of f at the training rows is exact
    up to 2,000 rows. With more it is an exact part, what 200 of the rows explain, and one from 200
    draws, whose share of a variance has a relative standard error of 10 %.

    f at a new row given that at the nearest training rows has the mean b'f_N and the variance d, so
    that its mean is b'E(f_N) and its variance d + b'Cov(f_N) b.

    Args:
        kernel: Any kernel of ``ppgp.kernels``, or a composition.
        likelihood: Any likelihood that ``LatentGP`` takes.
        approximation: That of f given the rows: "laplace".
        neighbours: How many earlier rows each row depends on (m), and how many training rows a
            prediction; None: 30, or all if there are fewer.
        order: The order of the rows: "random", or "maximin"; see ``Vecchia``.
        mean: Of f: number, prior, ``LinearMean`` or function of X, see ``GP``; None: as in
            ``LatentGP``.
        seed: Seed of the order, of the probes and of the draws.
        lengths: Set by ``prepare``: the length of each column by which neighbours are nearest, or
            the matrix P of a metric.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If the likelihood is not a member of ``ppgp.likelihoods``, or for an option
            that is none of these; from ``fit``, for as many neighbours as rows, or more.
        NotApplicable: For another approximation than "laplace", or if the likelihood has several
            functions, or no slopes by formula.
        DataError: From ``fit``, if y does not suit the likelihood.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, likelihoods, models
        >>> X = torch.linspace(0, 5, 30, dtype=torch.float64)[:, None]
        >>> y = (torch.sin(2 * X[:, 0]) > 0).double()
        >>> kernel = kernels.Matern(1.5, variance=4.0, lengthscale=1.0)
        >>> options = {"how": inference.MAP(), "progress": False, "standardise": False}
        >>> def evidence(model):
        ...     return ppgp.fit(model, ppgp.Dataset(X, y), **options).log_evidence
        >>> yes = {"likelihood": likelihoods.Bernoulli()}
        >>> dense = evidence(models.GP(kernel, **yes))
        >>> type(models.Vecchia(kernel, **yes)).__name__
        'LatentVecchia'
        >>> abs(evidence(models.Vecchia(kernel, neighbours=29, **yes)) - dense) < 1e-6
        True
        >>> abs(evidence(models.Vecchia(kernel, neighbours=10, **yes)) - dense) < 0.01
        True
    """

    kernel: Kernel = field(default_factory=lambda: Matern(1.5))
    likelihood: Likelihood = field(default_factory=Bernoulli)
    approximation: str = "laplace"
    neighbours: int | None = None
    order: str = "random"
    mean: MeanLike | None = None
    seed: int = 0
    lengths: Lengths | None = field(default=None, repr=False, kw_only=True)
    standardised: bool = field(default=False, kw_only=True)
    sampled_rows = 200
    joint_rows = True
    keeps_factor = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)
        self._nearest.check()
        if self.approximation != "laplace":
            do = "use GP(kernel, likelihood=..., latent=...) on few rows"
            raise NotApplicable("latent='laplace' for Vecchia", repr(self.approximation), do)

    @cached_property
    def _nearest(self) -> NearestRows:
        """The neighbours of each row; they are searched once for the same rows."""
        return NearestRows(self.kernel, self.neighbours, self.order, self.seed, self.lengths)

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            **self.likelihood.sites(),
            **self.mean_of(d).sites(d),
        }

    def work(self, n: int, d: int) -> float:
        return float(n) * (self._nearest.number**3 + SEARCH * self._nearest.number) + super().work(
            n, d
        )

    def chunked(self, data: Dataset) -> bool:
        """Return whether the density has a search inside, which cannot be compiled."""
        return True

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that what the estimate of the evidence holds of n rows fits into memory.

        Raises:
            NotEnoughMemory: If it does not.
        """
        if n > MOST_DENSE:

            def advice(_: float) -> str:
                return instead_of("Vecchia", d, n, kernel=self.kernel, likelihood=self.likelihood)

            check_memory_of_rows(n, NUMBERS_A_ROW, like, "the search for f", advice)

    def prepare(self, data: Dataset) -> LatentVecchia:
        """Return the recipe with a likelihood, a mean and lengths for these rows.

        Raises:
            SettingError: For as many neighbours as rows, or more.
            DataError: If y does not suit the likelihood.
            NumericalError: For a network whose units are all dead or saturated at the start.
        """
        if broken := self.kernel.check_fit({}, data.X):
            raise broken_network(broken[0], data.X)
        self._nearest.refuse_too_many(data.n)
        hyper = under("kernel", medians(self.sites_at(data.d), data.X, 0))
        return replace(
            self,
            likelihood=self.likelihood.prepare(data),
            mean=self.mean_for(data),
            lengths=self._nearest.lengths_at(hyper, data.X),
        )

    def in_units(self, scaler: Scaler) -> LatentVecchia:
        kernel = self.kernel.in_units(Units.of(scaler))
        mean = self.mean_in_units(scaler)
        likelihood = self.likelihood.in_units(float(scaler.y_sd))
        return replace(self, kernel=kernel, likelihood=likelihood, mean=mean)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        factors = prefixed("kernel", self.kernel.factors(Units.of(scaler)))
        factors |= self.likelihood.factors(float(scaler.y_sd))
        return self.hyperparameters_of_data(draws, factors, scaler)

    def subset_model(self, data: Dataset) -> tuple[LatentGP, Dataset] | None:
        """Return a LatentGP and a random subset of the rows; None for few rows or a network."""
        if self._nearest.deep(data.d) or data.n < 2 * SUBSET_ROWS:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        subset = permutation(generator, data.n)[:SUBSET_ROWS].to(data.X.device)
        return LatentGP(self.kernel, self.likelihood, mean=self.mean), data.rows(subset)

    def warm_start(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the hyperparameters of the subset model."""
        return {name: value for name, value in theta.items() if name in self.sites_at(data.d)}

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the neighbours of rows, and about a network."""
        one = first_draw(self.sites_at(data.d), theta)
        few = self._nearest.too_few(self._law(one, data.X), data.X)
        return [*self._nearest.notes(theta, data.X), *few]

    def outdated(self, theta: Theta, data: Dataset) -> bool:
        """Return whether lengthscales relative to one another have changed by more than 2."""
        return self._nearest.outdated(theta, data.X)

    def reselected(self, theta: Theta, data: Dataset) -> LatentVecchia:
        """Return the recipe with neighbours that are nearest at theta, for another fit."""
        lengths = self._nearest.lengths_of(under("kernel", theta), data.X)
        return replace(self, lengths=lengths).made_from(self, self.made_for)

    def fit_stats(self, theta: Theta, data: Dataset) -> dict[str, float]:
        """Return the standard error of the log density where it is estimated."""
        if data.n <= MOST_DENSE:
            return {}
        middle = {name: value.median(0).values for name, value in theta.items()}
        with torch.no_grad():
            return {"log_density_error": self._marginal(middle, data.X).given(data.y).error()}

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        """Run the Pyro program of the model; see ``GP.model``."""
        if total is not None and total != len(X):
            raise mini_batch(
                self, X, total, "use the full batch, or SVGP, which takes mini-batches"
            )
        theta = draw(self.sites_at(X.shape[-1]), X)
        return pyro.sample("y", self._marginal(theta, X), obs=y)

    def _law(self, theta: Theta, X: Tensor) -> Law:
        """Return the covariances of f at the rows of X, at one draw."""
        kernel, hyper, (where,) = self.kernel.to_feature_space(under("kernel", theta), X)
        return Law(kernel, hyper, (1 + JITTER[X.dtype]) * kernel.diag(hyper, where), where)

    def _marginal(self, theta: Theta, X: Tensor) -> LatentNeighbourMarginal:
        """Return the distribution of y at the rows of X, at one draw."""
        f = RowsGivenNeighbours(self._law(theta, X), self._nearest.sets(X))
        mean, own = self.mean_at(theta, X).expand(len(X)), self.of_likelihood(theta)
        return LatentNeighbourMarginal(self.likelihood, own, mean, f, self.seed)

    # -- f given the training rows --------------------------------------------------------------

    def training_factor(self, theta: Theta, train: Dataset) -> tuple[Tensor, ...]:
        """Return ``LatentNeighbourMarginal.posterior`` at one draw."""
        with torch.no_grad():
            return self._marginal(theta, train.X).posterior(train.y)

    def moments(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        kept = kept or ResultCache(limit=0)
        draws = one_by_one(self.sites_at(train.d), theta)
        check_memory_of_predictions(len(draws), len(X), X, joint)
        members = (
            self._nearest.members_after(train.X, X) if joint else self._members_apart(train.X, X)
        )
        every = torch.cat([train.X, X])
        size = max(1, PAIRS_AT_ONCE // members.shape[1] ** 2)
        of_draws = []
        for k, one in enumerate(draws):
            factor = partial(self.training_factor, one, train)
            h, _, _, C = kept.get((k, k + 1), factor, one)
            known = torch.cat([h[:, None], C], 1)
            law = self._law(one, every)
            if joint:
                of_draws.append(_jointly(law.rows_of_root(members), members, known))
                continue
            pieces = [_apart(law.rows_of_root(some), some, known) for some in members.split(size)]
            of_draws.append(tuple(torch.cat(parts) for parts in zip(*pieces, strict=True)))
        means, spreads = (torch.stack(parts) for parts in zip(*of_draws, strict=True))
        centre = torch.stack([self.mean_at(one, X) for one in draws])
        return means + centre, spreads

    def _members_apart(self, train: Tensor, X: Tensor) -> Tensor:
        """Return the sets of new rows that depend on training rows alone, [m, k + 1]."""
        near = nearest_rows(
            self._nearest.scaled(train),
            self._nearest.scaled(X),
            self._nearest.number_for(len(train)),
        )
        return torch.cat([near, len(train) + torch.arange(len(X)).to(near)[:, None]], 1)

    def without_each_row(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        """Return the moments of ``LatentModel.without_each_row``.

        Past ``MOST_DENSE_COVARIANCE`` rows, where the variance is a difference from an estimate,
        that of a row that tells more about f than the others is given the nearest other rows alone.
        """
        h, a, W, C = self.training_factor(theta, train)
        variance = C.square().sum(1)
        left = 1 - W * variance
        cavity = variance / left
        if train.n > MOST_DENSE_COVARIANCE:
            prior = self._law(theta, train.X).variance
            cavity = torch.where(left > 0, torch.minimum(cavity, prior), prior)
            near = self._given_nearest(theta, train.X, W)
            cavity = torch.where(W * near > 1, near, cavity)
        return h - cavity * a, cavity

    def _given_nearest(self, theta: Theta, X: Tensor, W: Tensor) -> Tensor:
        """Return the variance of f at each row given Gaussian rows of precision W at the nearest.

        The row itself is not among them. Where the precision of one is negative, it is the variance
        of the prior.
        """
        law, scaled = self._law(theta, X), self._nearest.scaled(X)
        found = []
        for i in torch.arange(len(X), device=X.device).split(ROWS_AT_ONCE):
            near = nearest_rows(scaled, scaled[i], min(self._nearest.number + 1, len(X)))
            of_near = torch.where(near == i[:, None], 0.0, W[near])
            s = of_near.clamp_min(0.0).sqrt()
            places = law.X[near]
            K = law.kernel(law.theta, places, places)
            K.diagonal(dim1=-2, dim2=-1).copy_(law.variance[near])
            cross = law.kernel(law.theta, places, law.X[i][:, None])[..., 0]
            A = s[:, :, None] * K * s[:, None]
            A.diagonal(dim1=-2, dim2=-1).add_(1.0)
            L, failed = torch.linalg.cholesky_ex(A)
            right = (s * cross)[..., None]
            told = torch.linalg.solve_triangular(L, right, upper=False).square().sum((1, 2))
            prior = law.variance[i]
            useful = (of_near >= 0).all(1) & (failed == 0) & (told < prior)
            found.append(torch.where(useful, prior - told, prior))
        return torch.cat(found)


class RowsGivenNeighbours(NamedTuple):
    """f - mean at the rows of the data, each given the nearest rows before it.

    Attributes:
        law: The covariances of f.
        sets: The rows that each depends on.
    """

    law: Law
    sets: Sets

    def root(self) -> tuple[Tensor, Tensor]:
        """Return the root U of the precision in the order of the rows: entries, members."""
        w, order = self.law.weights(self.sets), self.sets.order
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        members = self.sets.members
        at = torch.where(members < 0, -1, place[members.clamp_min(0).long()])
        return w / w[-1].sqrt(), at


class LatentNeighbourMarginal(LatentRows):
    """y at n rows where f is Gaussian by Vecchia's approximation, and y_i depends on f_i alone.

    ``log_prob`` is Laplace's approximation of the log density; samples are exact.

    Args:
        likelihood: As in LatentRows.
        theta: {site: []} of the likelihood.
        mean: [n], the mean of f.
        f: The difference f - mean at the rows.
        seed: That of the probes of an estimated determinant.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        theta: Theta,
        mean: Tensor,
        f: RowsGivenNeighbours,
        seed: int = 0,
    ) -> None:
        self.f, self.seed = f, seed
        super().__init__(likelihood, theta, mean, torch.Size())

    def expand(
        self, batch_shape: Sequence[int], _instance: object = None
    ) -> LatentNeighbourMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("a distribution of one draw of the hyperparameters")
        return self

    def one_by_one(self) -> list[LatentNeighbourMarginal]:
        return [self]

    def latent_variance(self) -> Tensor:
        return self.f.law.variance

    def log_prob(self, value: Tensor) -> Tensor:
        if value.ndim > 1:
            return torch.stack([self.log_prob(one) for one in value])
        return self.log_evidence(value)

    def log_evidence(self, y: Tensor) -> Tensor:
        return self.given(y).log_evidence()

    def given(self, y: Tensor) -> SparseLaplace:
        """Return the problem of f given y, in the order of the rows."""
        order = self.f.sets.order
        rows = LikelihoodRows(self.likelihood, tuple(self.theta), y[order])
        parameters = tuple(self.theta.values())
        return SparseLaplace(*self.f.root(), self.latent_mean[order], rows, parameters, self.seed)

    def posterior(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ``SparseLaplace.posterior`` given y, in the order of the rows of the data."""
        h, a, W, C = self.given(y).posterior()
        back = torch.argsort(self.f.sets.order)
        return h[back], a[back], W[back], C[back]

    def drawn(self, shape: torch.Size) -> Tensor:
        e = torch.randn(
            shape + self.event_shape, dtype=self.latent_mean.dtype, device=self.latent_mean.device
        )
        w = self.f.law.weights(self.f.sets)
        return solve_earlier(w, self.f.sets, e.reshape(-1, e.shape[-1]).T).T.reshape(e.shape)


def _apart(rows: Tensor, members: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance of new rows [m], each apart.

    Args:
        rows: [m, k + 1], their rows of the root of the precision.
        members: [m, k + 1], to which rows these belong, the new row last.
        known: [n, 1 + q], the mean of the training rows, and a root of their covariance.
    """
    b = -rows[:, :-1] / rows[:, -1:]
    of_known = (b[:, None] @ known[members[:, :-1]])[:, 0]
    return of_known[:, 0], of_known[:, 1:].square().sum(1) + rows[:, -1].reciprocal().square()


def _jointly(rows: Tensor, members: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean [m] and the covariance [m, m] of new rows; see ``_apart``."""
    n, m = len(known), len(rows)
    padded = torch.cat([known, torch.zeros_like(known[:1])])
    of_known = (rows[:, None] @ padded[members.clamp_max(n)])[:, 0]
    own = part_of_new_rows(rows, members, n)
    right = torch.cat([-of_known, torch.eye(m).to(rows)], 1)
    solved = torch.linalg.solve_triangular(own, right, upper=False)
    root = solved[:, 1:]
    return solved[:, 0], root @ root.mT


def with_likelihood(
    kernel: Kernel | None = None,
    noise: PriorLike | None = None,
    neighbours: int | None = None,
    order: str = "random",
    drift: Any = "none",
    mean: MeanLike | None = None,
    seed: int = 0,
    *,
    likelihood: Any = None,
    latent: Any = None,
    lengths: Lengths | None = None,
    standardised: bool = False,
) -> LatentVecchia:
    """Return the LatentVecchia that ``Vecchia`` with these arguments makes.

    Raises:
        SettingError: If latent is given without a likelihood, or noise or a drift beside one.
    """
    check_latent(likelihood, noise)
    if drift not in (None, "none", "constant"):
        raise SettingError(
            "no drift beside a likelihood",
            f"drift={drift!r} and likelihood={likelihood!r}",
            "leave drift out, or pass mean=LinearMean()",
        )
    return LatentVecchia(
        Matern(1.5) if kernel is None else kernel,
        likelihood,
        latent or "laplace",
        neighbours,
        order,
        mean,
        seed,
        lengths=lengths,
        standardised=standardised,
    )
