"""The posterior of a sparse GP given its hyperparameters, in closed form.

This file holds the collapsed bounds on the evidence, the distribution q(u) of the inducing
variables, and the predictions of SGPR.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..errors import NumericalError
from ..kernels import Kernel
from ..numerics.blocks import Assembled
from ..numerics.cholesky import add_diagonal, cholesky
from ..numerics.collapsed_bound import Projection, SparseMarginal, inducing_root
from ..priors import Site, under
from .base import Model
from .memory_checks import check_memory_of_predictions
from .sites import Theta, number_of_draws, split_params

ROWS_AT_ONCE = 8192


class DrawOfSparse(NamedTuple):
    """One draw of theta with the sums over the training rows that its posterior needs.

    Attributes:
        theta: {site: [*event]}.
        Z: the inducing inputs [m, d].
        L: the root of their covariance [m, m].
        noise: the variance of y that is independent between rows: the noise, and White in f.
        rows: the training rows projected onto the inducing variables.
    """

    theta: dict[str, Tensor]
    Z: Tensor
    L: Tensor
    noise: Tensor
    rows: Projection


class CollapsedPosterior(Model):
    """Bounds and predictions of y ~ N(mean, K + noise I) with m inducing inputs. Titsias (2009).

    Attributes:
        kernel: the covariance of f.
        Z: the inducing inputs [m, d]; None before ``prepare``.
    """

    kernel: Kernel
    Z: Any

    def _select_before_fit(self, X: Tensor) -> Tensor:
        """Place inducing inputs at the medians of the priors, for a recipe without them."""
        raise NotImplementedError

    def _marginal(self, theta: Theta, X: Tensor, Z: Tensor) -> SparseMarginal:
        """Return the approximate distribution of y at X for one draw theta {site: [*event]}."""
        kernel, hyper, (Z, X) = self.kernel.to_feature_space(under("kernel", theta), Z, X)
        Kmm, diagonal = kernel.shared(hyper, Z), kernel.diag(hyper, X)
        nugget = kernel.nugget(hyper, Z)
        mean, noise = self.value(theta, "mean", X), self.value(theta, "noise", X)
        if nugget is not None:  # no other row shares it, so it counts as noise
            diagonal = diagonal - nugget[0]
            noise = noise + nugget[0]
        return SparseMarginal(mean.expand(len(X)), Kmm, kernel, hyper, Z, X, diagonal, noise)

    def _inducing_inputs(self, theta: Theta, like: Tensor) -> Tensor:
        """Return the inducing inputs that belong to theta."""
        if "inducing" in theta:
            return theta["inducing"].to(like)
        if self.Z is None:
            return self._select_before_fit(like)
        return self.Z.to(like)

    def _drawn(self, theta: Theta, d: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Split theta into draws and params, without the inducing inputs."""
        without = {name: value for name, value in theta.items() if name != "inducing"}
        return split_params(self.sites(d), without)

    def _one_by_one(self, theta: Theta, train: Dataset) -> Iterator[DrawOfSparse]:
        """Solve the system of the training rows for one draw at a time.

        Raises:
            NumericalError: if the covariance of the inducing inputs is not positive definite.
        """
        drawn, params = self._drawn(theta, train.d)
        for i in range(number_of_draws(drawn)):
            one = {**params, **{k: v[i] for k, v in drawn.items()}}
            Z = self._inducing_inputs(theta, train.X)
            marginal = self._marginal(one, train.X, Z)
            L = inducing_root(marginal.Kmm)
            if not bool(torch.isfinite(L).all()):
                raise NumericalError(
                    "a positive definite covariance of the inducing inputs",
                    "one that is not",
                    "use fewer, or a shorter lengthscale",
                )
            yield DrawOfSparse(one, Z, L, marginal.noise, marginal.project(train.y, L))

    def bounds(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """Return a lower and an upper bound on log p(y given theta).

        Titsias (2009) for the lower bound and Titsias (2014) for the upper. theta and data are on
        one scale: after a fit, call ``posterior.model.bounds(posterior.theta, posterior.data)``.

        Args:
            theta: {site: [draw, *event]}, or {site: [*event]} for one draw.
            data: the training rows.

        Returns:
            The lower and the upper bound, [draw] each, or [] for theta without a draw axis.
        """
        axes = {name: len(s.shape) for name, s in self.sites(data.d).items() if isinstance(s, Site)}
        single = all(v.ndim == axes[k] for k, v in theta.items() if k in axes)
        batch = {k: v[None] if single and k in axes else v for k, v in theta.items()}
        both = []
        for one in self._one_by_one(batch, data):
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
        for one in self._one_by_one(theta, data):
            mean, W = one.rows.posterior(one.noise)
            means.append(one.L @ mean + self.value(one.theta, "mean", data.X))
            root = W @ one.L.mT
            covariances.append(root.mT @ root)
        return torch.stack(means), torch.stack(covariances)

    def _conditional(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the moments of f at X given the training rows, and the noise.

        These are the mean [draw, k], the variance [draw, k] or, if ``joint``, the covariance
        [draw, k, k], and the noise variance [draw].
        """
        count = number_of_draws(self._drawn(theta, train.d)[0])
        check_memory_of_predictions(count, len(X), X, joint)
        means = Assembled(count, len(X))
        spreads = Assembled(count, len(X), (len(X),) if joint else ())
        noises = []
        width = max(1, len(X) if joint else ROWS_AT_ONCE)
        for i, one in enumerate(self._one_by_one(theta, train)):
            hyper, level = under("kernel", one.theta), self.value(one.theta, "mean", X)
            draw = slice(i, i + 1)
            mean, W = one.rows.posterior(one.noise)
            for row in range(0, max(1, len(X)), width):
                block = X[row : row + width]
                cross = self.kernel(hyper, one.Z, block)
                A = torch.linalg.solve_triangular(one.L, cross, upper=False)
                means.put(A.mT @ mean + level, draw, row)
                if joint:
                    spread = self.kernel(hyper, block) - A.mT @ A + (W @ A).mT @ (W @ A)
                else:
                    prior = self.kernel.diag(hyper, block)
                    spread = prior - A.square().sum(0) + (W @ A).square().sum(0)
                    spread = torch.maximum(spread, torch.finfo(prior.dtype).eps * prior)
                spreads.put(spread, draw, row)
            noises.append(self.value(one.theta, "noise", X))
        return means.whole, spreads.whole, torch.stack(noises)

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        mean, spread, noise = self._conditional(theta, X, train, joint)
        if joint:
            covariance = add_diagonal(spread, noise[:, None])
            root = cholesky(covariance, "predictive covariance")
            return dist.MultivariateNormal(mean, scale_tril=root)
        # in place: spread is a new tensor as large as the predictions
        return dist.Normal(mean, spread.add_(noise[:, None]).sqrt_())

    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """Return the predictive distribution of f at X, without the noise: batch [draw, k]."""
        mean, spread, _ = self._conditional(theta, X, train, False)
        return dist.Normal(mean, spread.sqrt_())

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        This is leave-one-out of a GP (Rasmussen & Williams 2006, equations 5.10 to 5.12) with the
        covariance Q + noise I. Each variance also includes the part of k_ii that Q leaves out, as
        in ``predict``.
        """
        means, variances = [], []
        for one in self._one_by_one(theta, train):
            hyper, level = under("kernel", one.theta), self.value(one.theta, "mean", train.X)
            nugget = self.kernel.nugget(hyper, one.Z)
            mean, W = one.rows.posterior(one.noise)
            for i in range(0, train.n, ROWS_AT_ONCE):
                X, y = train.X[i : i + ROWS_AT_ONCE], train.y[i : i + ROWS_AT_ONCE]
                cross = self.kernel(hyper, one.Z, X)
                A = torch.linalg.solve_triangular(one.L, cross, upper=False)
                a = (y - level - A.mT @ mean) / one.noise
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
