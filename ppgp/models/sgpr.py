"""Sparse Gaussian-process regression: inducing inputs, q(u) in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data import Dataset
from ..errors import NumericalError
from ..kernels import RBF, Kernel
from ..linalg import add_diagonal, cholesky
from ..priors import LogNormal, Param, PriorLike, Site, prefixed, site, under
from ..sparse import Projection, SparseMarginal, inducing_root, project
from .model import Model, Theta, draw, full_batch_only, number_of_draws, split_params
from .placing import check_given, check_number, medians, place

ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class SGPR(Model):
    """y ~ N(mean, K + noise I), the evidence replaced by its collapsed lower bound over m inducing inputs. Titsias (2009).

    Args:
        kernel: any member of ``ppgp.kernels``, or a composition.
        inducing: m; None: 100, or all rows where there are fewer. At m = n and Z = X this is the exact GP.
        selection: how they are placed in ``prepare``: "kmeans", "random", "conditional_variance" or "bound" (greedy, at the
            medians of the priors; ``reselected`` places them again at fitted values).
        learn: whether MAP and SVI move them by gradient (they are the param ``inducing``).
        noise, mean: as in ``GP``; noise cannot be 0.
        seed: of the selection.

    O(n m^2) time and, beyond 256 MB of covariances, O(m^2) memory. The density is a bound, so that samplers draw from what is
    proportional to it; ``bounds`` says how far it may be from the evidence.
    """

    kernel: Kernel = field(default_factory=RBF)
    inducing: int | None = None
    selection: str = "kmeans"
    learn: bool = False
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: PriorLike = 0.0
    seed: int = 0
    Z: Tensor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_number(self.inducing)

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            "noise": site("noise", self.noise, positive=True),
            "mean": site("mean", self.mean),
        }

    def prepare(self, data: Dataset) -> SGPR:
        """With inducing inputs for these rows.

        Raises:
            SettingError: if there are more inducing inputs than rows.
            DataError: if fewer rows differ, or a Z given by hand repeats itself or has other columns.
        """
        if self.Z is not None:
            check_given(self.Z, data.d)
            return self
        return replace(self, Z=self._select(self._medians(data.X), data.X, data.y))

    def reselected(self, theta: Theta, data: Dataset) -> SGPR:
        """Inducing inputs placed again, at hyperparameters theta {site: [*event]} (one draw), for another fit."""
        return replace(self, Z=self._select(theta, data.X, data.y))

    def _medians(self, X: Tensor) -> dict[str, Tensor]:
        return medians(self.sites(X.shape[1]), X, self.seed)

    def _select(self, theta: Theta, X: Tensor, y: Tensor | None) -> Tensor:
        noise = float(self.value(theta, "noise", X))
        r = None if y is None else y - self.value(theta, "mean", X)
        return place(self.selection, self.inducing, self.kernel, theta, X, r, noise, self.seed)

    def _inducing(self, X: Tensor) -> Tensor:
        """The param, which is Z unless something has moved it."""
        Z = self.Z if self.Z is not None else self._select(self._medians(X), X, None)
        return pyro.param("inducing", Z.to(X)) if self.learn else Z.to(X)

    def _law(self, theta: Theta, X: Tensor, Z: Tensor) -> SparseMarginal:
        """One draw: theta {site: [*event]}."""
        noise, mean = self.value(theta, "noise", X), self.value(theta, "mean", X)
        kernel, hyper, (Z, X) = self.kernel.seen(under("kernel", theta), Z, X)
        return SparseMarginal(
            mean.expand(len(X)),
            kernel(hyper, Z),
            lambda rows: kernel(hyper, Z, X[rows]),
            kernel.diag(hyper, X),
            noise,
        )

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        full_batch_only(self, X, total, "use the full batch (its cost grows linearly with the rows), or SVGP")
        theta = draw(self.sites(X.shape[-1]), X)
        return pyro.sample("y", self._law(theta, X, self._inducing(X)), obs=y)

    def _of(self, theta: Theta, like: Tensor) -> Tensor:
        """The inducing inputs behind theta."""
        if "inducing" in theta:
            return theta["inducing"].to(like)
        if self.Z is None:
            return self._select(self._medians(like), like, None)
        return self.Z.to(like)

    def _one_by_one(self, theta: Theta, train: Dataset) -> Iterator[tuple[dict[str, Tensor], Tensor, Tensor, Projection]]:
        """(theta of a draw, Z, L, what the rows say), draw by draw."""
        drawn, params = split_params(self.sites(train.d), {k: v for k, v in theta.items() if k != "inducing"})
        for i in range(number_of_draws(drawn)):
            one = {**params, **{k: v[i] for k, v in drawn.items()}}
            Z = self._of(theta, train.X)
            law = self._law(one, train.X, Z)
            L = inducing_root(law.Kmm)
            if not bool(torch.isfinite(L).all()):
                raise NumericalError(
                    "a positive definite covariance of the inducing inputs",
                    "one that is not",
                    "use fewer, or a shorter lengthscale",
                )
            yield one, Z, L, project(law.cross, L, train.y - law.loc, law.diagonal)

    def bounds(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """Lower and upper bound on log p(y given theta), Titsias (2009) and (2014): [draw], or [] for theta without a draw axis."""
        axes = {name: len(s.shape) for name, s in self.sites(data.d).items() if isinstance(s, Site)}
        single = all(v.ndim == axes[k] for k, v in theta.items() if k in axes)
        batch = {k: v[None] if single and k in axes else v for k, v in theta.items()}
        found = []
        for one, _, _, rows in self._one_by_one(batch, data):
            noise = self.value(one, "noise", data.X)
            found.append(torch.stack([rows.lower(noise), rows.upper(noise)]))
        lower, upper = torch.stack(found, 1)
        return (lower[0], upper[0]) if single else (lower, upper)

    def inducing_posterior(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """q(u) at each draw: mean [draw, m] and covariance [draw, m, m]. Titsias (2009), equation 10."""
        means, covariances = [], []
        for one, _, L, rows in self._one_by_one(theta, data):
            mean, W = rows.posterior(self.value(one, "noise", data.X))
            means.append(L @ mean + self.value(one, "mean", data.X))
            covariances.append((W @ L.mT).mT @ (W @ L.mT))
        return torch.stack(means), torch.stack(covariances)

    def _conditional(self, theta: Theta, X: Tensor, train: Dataset, joint: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Mean [draw, k], variance [draw, k] or covariance [draw, k, k] of f at X, and the noise [draw]."""
        means, spreads, noises = [], [], []
        for one, Z, L, rows in self._one_by_one(theta, train):
            hyper, noise = under("kernel", one), self.value(one, "noise", X)
            mean, W = rows.posterior(noise)
            mean_parts, spread_parts = [], []
            for block in X.split(len(X) if joint else ROWS_AT_ONCE):
                A = torch.linalg.solve_triangular(L, self.kernel(hyper, Z, block), upper=False)
                mean_parts.append(A.mT @ mean + self.value(one, "mean", X))
                if joint:
                    spread_parts.append(self.kernel(hyper, block) - A.mT @ A + (W @ A).mT @ (W @ A))
                else:
                    prior = self.kernel.diag(hyper, block)
                    spread = prior - A.square().sum(0) + (W @ A).square().sum(0)
                    spread_parts.append(torch.maximum(spread, torch.finfo(prior.dtype).eps * prior))
            means.append(torch.cat(mean_parts))
            spreads.append(torch.cat(spread_parts, -1))
            noises.append(noise)
        return torch.stack(means), torch.stack(spreads), torch.stack(noises)

    def predict(self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False) -> Distribution:
        mean, spread, noise = self._conditional(theta, X, train, joint)
        if joint:
            covariance = add_diagonal(spread, noise[:, None])
            return dist.MultivariateNormal(mean, scale_tril=cholesky(covariance, "predictive covariance"))
        return dist.Normal(mean, (spread + noise[:, None]).sqrt())

    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """The law of f at X, without the noise: batch [draw, k]."""
        mean, spread, _ = self._conditional(theta, X, train, False)
        return dist.Normal(mean, spread.sqrt())

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """y_i given the other rows, batch [draw, n]: as for a GP (Rasmussen & Williams 2006, equations 5.10 to 5.12) of covariance
        Q + noise I, each variance with the part of k_ii that Q leaves out, as in ``predict``."""
        means, variances = [], []
        for one, Z, L, rows in self._one_by_one(theta, train):
            hyper, s2, level = under("kernel", one), self.value(one, "noise", train.X), self.value(one, "mean", train.X)
            mean, W = rows.posterior(s2)
            for i in range(0, train.n, ROWS_AT_ONCE):
                X, y = train.X[i : i + ROWS_AT_ONCE], train.y[i : i + ROWS_AT_ONCE]
                A = torch.linalg.solve_triangular(L, self.kernel(hyper, Z, X), upper=False)
                a = (y - level - A.mT @ mean) / s2
                d = (1 - (W @ A).square().sum(0) / s2) / s2
                left_out = (self.kernel.diag(hyper, X) - A.square().sum(0)).clamp_min(0.0)
                means.append(y - a / d)
                variances.append(1 / d + left_out)
        return dist.Normal(torch.cat(means).reshape(-1, train.n), torch.cat(variances).reshape(-1, train.n).sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """The likelihood is joint; pointwise it is the leave-one-out density."""
        return {"y": self.loo(theta, data).log_prob(data.y)}
