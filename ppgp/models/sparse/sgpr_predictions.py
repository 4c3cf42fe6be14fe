"""The posterior of a sparse GP given its hyperparameters, in closed form.

This file holds the collapsed bounds on the evidence, the distribution q(u) of the inducing
variables, and the predictions of SGPR.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...data.dataset import Dataset
from ...errors import NumericalError
from ...kernels import Kernel
from ...numerics.cholesky import inducing_root
from ...numerics.least_variance import at_least_rounding
from ...numerics.projection import Projection, posterior_of
from ...numerics.triangles import solved
from ...priors import Site, under
from ...runtime.result_cache import ResultCache
from ...runtime.team import ALONE, Team
from ..advice.memory_checks import check_memory_of_predictions
from ..gaussian_predictions import with_noise
from ..means import rows_of_mean
from ..sites import Theta, one_by_one
from ..with_mean import WithMean
from .collapsed_bound import SparseMarginal
from .sgpr_streams import KEPT, SumsOfStreams, kept_sums, projection_of, without_sums

ROWS_AT_ONCE = 8192


SUMS = "sums over the rows"  # the name of what an update keeps


class Sums(NamedTuple):
    """The sums over rows that q(u) depends on: A A' [m, m] and A r [m] (``Projection``)."""

    S: Tensor
    Ar: Tensor


class DrawOfSparse(NamedTuple):
    """The sums over the training rows that the posterior under one draw of theta needs.

    Attributes:
        Z: The inducing inputs [m, d].
        L: The root of their covariance [m, m].
        noise: The variance of y that is independent between rows: the noise, and White in f.
        rows: The training rows projected onto the inducing variables.
    """

    Z: Tensor
    L: Tensor
    noise: Tensor
    rows: Projection

    def to(self, like: Tensor) -> DrawOfSparse:
        """Return the same with the dtype and on the device of a tensor."""
        sums = self.rows
        rows = Projection(
            sums.S.to(like), sums.Ar.to(like), sums.rr.to(like), sums.trace.to(like), sums.n
        )
        return DrawOfSparse(self.Z.to(like), self.L.to(like), self.noise.to(like), rows)


class CollapsedPosterior(SumsOfStreams, WithMean):
    """Bounds and predictions of y ~ N(mean, K + noise I) with m inducing inputs. Titsias (2009).

    Attributes:
        kernel: The covariance of f.
        Z: The inducing inputs [m, d]; None before ``prepare``.
    """

    kernel: Kernel
    Z: Any
    keeps_factor = True

    def _select_before_fit(self, X: Tensor) -> Tensor:
        """Place inducing inputs at the medians of the priors, for a recipe without them."""
        raise NotImplementedError

    def _marginal(self, theta: Theta, X: Tensor, Z: Tensor, team: Team = ALONE) -> SparseMarginal:
        """Return the approximate distribution of y at X for one draw theta {site: [*event]}."""
        kernel, hyper, (Z, X) = self.kernel.to_feature_space(under("kernel", theta), Z, X)
        Kmm, diagonal = kernel.shared(hyper, Z), kernel.diag(hyper, X)
        nugget = kernel.nugget(hyper, Z)
        mean, noise = self.mean_at(theta, X), self.value(theta, "noise", X)
        if nugget is not None:  # no other row shares it, so it counts as noise
            diagonal = diagonal - nugget[0]
            noise = noise + nugget[0]
        return SparseMarginal(mean.expand(len(X)), Kmm, kernel, hyper, Z, X, diagonal, noise, team)

    def _marginal_at(self, theta: Theta, X: Tensor) -> SparseMarginal:
        return self._marginal(theta, X, self._inducing_inputs(theta, X))

    def _inducing_inputs(self, theta: Theta, like: Tensor) -> Tensor:
        """Return the inducing inputs that belong to theta."""
        if "inducing" in theta:
            return theta["inducing"].to(like)
        if self.Z is None:
            return self._select_before_fit(like)
        return self.Z.to(like)

    def _one_by_one(self, theta: Theta, d: int) -> list[dict[str, Tensor]]:
        """Return theta of each draw, {site: [*event]}, with the params."""
        shared = {name: theta[name] for name in ("inducing",) if name in theta}
        kept = {name: theta[name] for name in KEPT if name in theta}
        others = {n: value for n, value in theta.items() if n not in (*shared, *kept)}
        every = [{**shared, **one} for one in one_by_one(self.sites_at(d), others)]
        return [{**one, **kept_sums(one, kept)} for one in every] if kept else every

    def _solved(self, theta: Theta, train: Dataset) -> DrawOfSparse:
        """Solve the system of the training rows for one draw theta {site: [*event]}.

        Raises:
            NumericalError: If the covariance of the inducing inputs is not positive definite.
        """
        known = projection_of(theta)
        if known is not None:  # in float64, whose jitter the sums belong to
            like, own = train.X[:1].double(), without_sums(theta)
            theta = {name: value.double() for name, value in own.items()}
            Z = self._inducing_inputs(theta, like)
            marginal = self._marginal(theta, like, Z)
        else:
            Z = self._inducing_inputs(theta, train.X)
            marginal = self._marginal(theta, train.X, Z, train.team)
        L = inducing_root(marginal.Kmm)
        if not bool(torch.isfinite(L).all()):
            raise NumericalError(
                "a positive definite covariance of the inducing inputs",
                "one that is not",
                "use fewer, or a shorter lengthscale",
            )
        if known is None:
            return DrawOfSparse(Z, L, marginal.noise, marginal.project(train.y, L))
        return DrawOfSparse(Z, L, marginal.noise, known).to(train.X)

    def bounds(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """Return a lower and an upper bound on log p(y given theta).

        Titsias (2009) for the lower bound and Titsias (2014) for the upper. theta and data are on
        one scale: after a fit, call ``posterior.model.bounds(posterior.theta, posterior.data)``.

        Args:
            theta: {site: [draw, *event]}, or {site: [*event]} for one draw.
            data: The training rows.

        Returns:
            The lower and the upper bound, [draw] each, or [] for theta without a draw axis.
        """
        axes = {name: len(s.shape) for name, s in self.sites(data.d).items() if isinstance(s, Site)}
        single = all(v.ndim == axes[k] for k, v in theta.items() if k in axes)
        batch = {k: v[None] if single and k in axes else v for k, v in theta.items()}
        both = []
        for part in self._one_by_one(batch, data.d):
            one = self._solved(part, data)
            both.append(torch.stack([one.rows.lower(one.noise), one.rows.upper(one.noise)]))
        lower, upper = torch.stack(both, 1)
        if single:
            return lower[0], upper[0]
        return lower, upper

    def inducing_posterior(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """Return the mean [draw, m] and the covariance [draw, m, m] of q(u) for each draw.

        Titsias (2009), equation 10.
        """
        means, covariances = [], []
        for part in self._one_by_one(theta, data.d):
            one = self._solved(part, data)
            mean, W = one.rows.posterior(one.noise)
            means.append(one.L @ mean + self.mean_at(part, one.Z))
            root = W @ one.L.mT
            covariances.append(root.mT @ root)
        return torch.stack(means), torch.stack(covariances)

    def training_factor(
        self, theta: Theta, train: Dataset
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return what predictions at any rows share, for one draw theta {site: [*event]}.

        These are the inducing inputs Z [m, d], the root L [m, m] of their covariance, and the mean
        [m] and a root W [m, m] of the covariance W' W of q(v), where u = L v.
        """
        one = self._solved(theta, train)
        return one.Z, one.L, *one.rows.posterior(one.noise)

    def _sums(self, theta: Theta, rows: Dataset) -> Sums:
        """Return the sums over rows for one draw theta {site: [*event]}."""
        found = self._solved(theta, rows).rows
        return Sums(found.S, found.Ar)

    def _shared(
        self, i: int, theta: dict[str, Tensor], train: Dataset, kept: ResultCache
    ) -> tuple[Tensor, ...]:
        """Return what predictions at any rows share, of draw i, from sums if they are kept."""
        sums = kept.found((SUMS, i), theta)
        compute = partial(self.training_factor, theta, train)
        if sums is not None:
            compute = partial(self._of_sums, theta, train.X[:1], Sums(*sums))
        return kept.get(i, compute, theta, not train.team.alone)

    def _of_sums(
        self, theta: Theta, like: Tensor, sums: Sums
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return what ``training_factor`` does, given the sums over all rows."""
        Z = self._inducing_inputs(theta, like)
        marginal = self._marginal(theta, like, Z)
        return Z, inducing_root(marginal.Kmm), *posterior_of(sums.S, sums.Ar, marginal.noise)

    def _conditional(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the moments of f at X given the training rows, and the noise.

        These are the mean [draw, k], the variance [draw, k] or, if ``joint``, the covariance
        [draw, k, k], and the noise variance [draw].
        """
        kept = kept or ResultCache(limit=0)
        every = self._one_by_one(theta, train.d)
        check_memory_of_predictions(len(every), len(X), X, joint)
        means = X.new_empty(len(every), len(X))
        spreads = X.new_empty(len(every), *((len(X),) if joint else ()), len(X))
        noises = X.new_empty(len(every))
        width = max(1, len(X) if joint else ROWS_AT_ONCE)
        for i, one in enumerate(every):
            hyper, level = under("kernel", one), self.mean_at(one, X)
            Z, L, mean, W = self._shared(i, one, train, kept)
            for row in range(0, len(X), width):
                rows = slice(row, row + width)
                cross = self.kernel(hyper, Z, X[rows])
                A = solved(L, cross)
                means[i, rows] = A.mT @ mean + rows_of_mean(level, rows)
                if joint:
                    spread = self.kernel(hyper, X[rows]) - A.mT @ A + (W @ A).mT @ (W @ A)
                else:
                    prior = self.kernel.diag(hyper, X[rows])
                    spread = prior - A.square().sum(0) + (W @ A).square().sum(0)
                    spread = at_least_rounding(spread, prior)
                spreads[i, ..., rows] = spread
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
        mean, spread, noise = self._conditional(theta, X, train, joint, kept)
        return with_noise(mean, spread, noise[:, None], joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        """Return the predictive distribution of f at X, without the noise: batch [draw, k]."""
        mean, spread, _ = self._conditional(theta, X, train, False, kept)
        return dist.Normal(mean, spread.sqrt_())

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        This is leave-one-out of a GP (Rasmussen & Williams 2006, equations 5.10 to 5.12) with the
        covariance Q + noise I. Each variance also includes the part of k_ii that Q leaves out, as
        in ``predict``.
        """
        means, variances = [], []
        for part in self._one_by_one(theta, train.d):
            one = self._solved(part, train)
            hyper, level = under("kernel", part), self.mean_at(part, train.X)
            nugget = self.kernel.nugget(hyper, one.Z)
            mean, W = one.rows.posterior(one.noise)
            for i in range(0, train.n, ROWS_AT_ONCE):
                rows = slice(i, i + ROWS_AT_ONCE)
                X, y = train.X[rows], train.y[rows]
                cross = self.kernel(hyper, one.Z, X)
                A = solved(one.L, cross)
                a = (y - rows_of_mean(level, rows) - A.mT @ mean) / one.noise
                d = (1 - (W @ A).square().sum(0) / one.noise) / one.noise
                smooth = self.kernel.diag(hyper, X)
                if nugget is not None:
                    smooth = smooth - nugget[0]
                left_out = (smooth - A.square().sum(0)).clamp_min(0.0)
                means.append(y - a / d)
                variances.append(1 / d + left_out)
        mean = torch.cat(means).reshape(-1, train.n)
        return dist.Normal(mean, torch.cat(variances).reshape(-1, train.n).sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data).log_prob(data.y)}
