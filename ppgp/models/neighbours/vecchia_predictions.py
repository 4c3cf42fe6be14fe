"""Predictions of a Gaussian process from the nearest rows."""

from __future__ import annotations

from functools import partial

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...data.dataset import Dataset
from ...numerics.cholesky import add_diagonal, at_least_rounding, cholesky
from ...priors import under
from ...runtime.result_cache import ResultCache
from ...runtime.team import ALONE, Team
from ..advice.memory_checks import check_memory_of_predictions
from ..exact.drift import Drift, basis, places
from ..means import WithMean, rows_of_mean
from ..noise import with_noise
from ..sites import Theta, one_by_one
from .nearest_earlier import nearest_rows
from .nearest_rows import NearestRows
from .neighbour_distribution import ConditionalOnNeighbours, NeighbourMarginal
from .weights import Law, weights

PLACES_AT_ONCE = 2048


class NeighbourPredictions(WithMean, NearestRows):
    """Predictions of a model y ~ N(F beta, K + noise I) from the nearest training rows.

    The trend is estimated from all training rows, by generalised least squares under the
    approximate covariance.
    """

    drift: Drift
    keeps_factor = True

    def _noise_of_rows(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _centre(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the known mean at rows X [*b, n, d] of one draw; 0 where there is a drift."""
        return self.mean_at(theta, X) if self.drift == "none" else X.new_zeros(1)

    def _functions(self, X: Tensor, train: Tensor) -> Tensor:
        """Return the functions of the drift at X [*b, n, d], [*b, n, p]; see ``basis``."""
        return basis(self.drift, X, train, self.kernel.output_columns())

    def _marginal(
        self, theta: Theta, X: Tensor, noise_sd: Tensor | None, team: Team = ALONE
    ) -> NeighbourMarginal:
        """Return the distribution of y at the rows of X, at one draw."""
        return NeighbourMarginal(
            self._centre(theta, X).expand(len(X)),
            self._law(theta, X, noise_sd),
            self._sets(X),
            self._functions(X, X),
            team,
        )

    def _law(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Law:
        """Return the covariances of y at the rows of X, at one draw."""
        kernel, hyper, (where,) = self.kernel.to_feature_space(
            under("kernel", theta), places(self.drift, X)
        )
        variance = kernel.diag(hyper, where) + self._noise_of_rows(theta, X, noise_sd)
        return Law(kernel, hyper, variance, where)

    def _of_batch(
        self, theta: Theta, X: Tensor, noise_sd: Tensor | None
    ) -> ConditionalOnNeighbours:
        """Return the distribution of rows given their neighbours, X [b, k, d], at one draw."""
        rows = X.flatten(0, 1)
        law = self._law(theta, rows, None if noise_sd is None else noise_sd.flatten())
        return ConditionalOnNeighbours(self._centre(theta, X), law, len(X))

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
        number = self._number_for(train.n)
        near = nearest_rows(self._scaled(train.X), self._scaled(X), number)
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

        Args:
            theta: {site: [draw, *event]}.
            X: Inputs [m, d].
            train: The training rows.
            joint: Whether the rows are predicted jointly: each then also depends on the new rows
                before it that are among its nearest.
            noise_sd: The known noise sd of the new rows [m], if any.
            kept: Where the trend of the training rows is kept between predictions.

        Returns:
            A Normal of batch [draw, m]; if ``joint``, a MultivariateNormal of batch [draw] and
            event [m].
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
        """Return the predictive distribution of f at X, without the noise: batch [draw, m]."""
        mean, variance = self._conditional(theta, X, train, kept)
        return dist.Normal(mean, variance.sqrt_())

    def _joint(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None
    ) -> Distribution:
        """Return the joint distribution of y at X, whose rows follow the training rows."""
        draws = one_by_one(self.sites_at(train.d), theta)
        check_memory_of_predictions(len(draws), len(X), X, joint=True)
        members = self._members_after(train.X, X)
        every = torch.cat([train.X, X])
        n, m = train.n, len(X)
        means, roots = [], []
        for one in draws:
            beta, R = self.training_factor(one, train)
            kernel, hyper, (where,) = self.kernel.to_feature_space(
                under("kernel", one), places(self.drift, every)
            )
            noise = torch.cat(
                [
                    self._noise_of_rows(one, train.X, train.noise_sd),
                    self._noise_of_rows(one, X, noise_sd),
                ]
            )
            variance = kernel.diag(hyper, where) + noise
            w = weights(partial(kernel, hyper), variance, where, members).T
            rows = w / w[:, -1:].sqrt()
            F = self._functions(every, train.X)
            residual = train.y - self._centre(one, train.X) - F[:n] @ beta
            known = torch.cat([torch.zeros_like(every[:, :1]), F], 1)
            known[:n, 0] = residual
            of_known = (rows[..., None] * known[members.long()]).sum(1)
            # the part of U that multiplies the new rows
            own = X.new_zeros(m, m + 1)
            column = torch.where(members >= n, members - n, m).long()
            own = own.scatter_add(1, column, rows)[:, :m]
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
