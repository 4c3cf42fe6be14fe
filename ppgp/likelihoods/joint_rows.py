"""The joint distribution of y at several rows, where f is jointly Gaussian."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..distributions.univariate import JointRows
from ..numerics.cholesky import add_diagonal, cholesky
from ..numerics.latent_ep import ep_log_evidence
from ..numerics.latent_laplace import laplace_log_evidence
from ..numerics.shapes import broadcast_shapes
from .base import Likelihood, Theta
from .bernoulli import Bernoulli
from .scored import Scored

Parameters = tuple[Tensor, ...]


class LikelihoodRows:
    """The log densities of the targets y as functions of f and of the likelihood's sites.

    Args:
        likelihood: A likelihood of one function of x, with slopes.
        names: The sites that ``parameters`` hold, in their order.
        y: The targets [n].
    """

    def __init__(self, likelihood: Likelihood, names: Sequence[str], y: Tensor) -> None:
        assert isinstance(likelihood, Scored)
        self.likelihood, self.names, self.y = likelihood, tuple(names), y

    def _theta(self, parameters: Parameters) -> Theta:
        return dict(zip(self.names, parameters, strict=True))

    def log_prob(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return log p(y_i | f_i), [n]."""
        return -self.likelihood.score(self._theta(parameters), f[None], self.y)

    def slopes(self, f: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return its first and second derivative by f_i, [n]."""
        first, second = self.likelihood.slopes(self._theta(parameters), f[None], self.y)
        return first[0], second[0]

    def step_curvature(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return minus a curvature for steps where it is not concave, [n]."""
        return self.likelihood.step_curvature(self._theta(parameters), f[None], self.y)

    def as_normal(
        self, f: Tensor | None, parameters: Parameters, width: float
    ) -> tuple[Tensor, Tensor] | None:
        """Return y and the precision of each row as a mixture of normals around f; None: f = y."""
        f = self.y if f is None else f
        theta = self._theta(parameters)
        precision = self.likelihood.precision_as_normal(theta, f[None], self.y, width)
        return None if precision is None else (self.y, precision)

    def tilted(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the averages of the rows over f_i ~ N(mean_i, variance_i), for EP."""
        assert isinstance(self.likelihood, Bernoulli)
        return self.likelihood.tilted(mean, variance, self.y)


class LatentRows(JointRows):
    """y at n rows where f is Gaussian, and y_i depends on f_i alone.

    ``log_prob`` is an approximation of the log density; samples are exact.

    Args:
        likelihood: A likelihood of one function of x, with slopes.
        theta: {site: [*batch]} of the likelihood.
        mean: [*batch, n], the mean of f.
        batch: The batch shape.
    """

    def __init__(
        self, likelihood: Likelihood, theta: Theta, mean: Tensor, batch: torch.Size
    ) -> None:
        self.likelihood, self.theta, self.latent_mean = likelihood, theta, mean
        super().__init__(batch, mean.shape[-1:], validate_args=False)

    @abstractmethod
    def latent_variance(self) -> Tensor:
        """Return the variance of f, [*batch, n]."""

    @abstractmethod
    def log_evidence(self, y: Tensor) -> Tensor:
        """Return the approximate log density of the rows y [n], without a batch."""

    @abstractmethod
    def one_by_one(self) -> Sequence[LatentRows]:
        """Return the distributions of the batch, each without one, in a row."""

    @abstractmethod
    def drawn(self, shape: torch.Size) -> Tensor:
        """Return draws of f - mean, [*shape, n]."""

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {}

    @property
    def support(self) -> constraints.Constraint:
        """The support of y."""
        one = self.likelihood.distribution(self.theta, self.latent_mean).support
        return constraints.independent(one, 1)

    def by_row(self) -> Distribution:
        return self.likelihood.marginal(self.theta, self.latent_mean, self.latent_variance())

    @property
    def mean(self) -> Tensor:
        """The mean of each row, [*batch, n]."""
        return self.by_row().mean

    @property
    def variance(self) -> Tensor:
        """The variance of each row, [*batch, n]."""
        return self.by_row().variance

    def of_batch(self, batch: torch.Size) -> tuple[Theta, Tensor]:
        """Return the sites of the likelihood and the mean of f with another batch shape."""
        own = len(self.batch_shape)
        theta = {k: v.expand(batch + v.shape[own:]) for k, v in self.theta.items()}
        return theta, self.latent_mean.expand(batch + self.event_shape)

    def each(self) -> tuple[list[Theta], Tensor]:
        """Return the sites of the likelihood and the mean of f of each distribution in a row."""
        own, means = len(self.batch_shape), self.latent_mean.reshape(-1, *self.event_shape)
        theta = {k: v.reshape(-1, *v.shape[own:]) for k, v in self.theta.items()}
        return [{k: v[i] for k, v in theta.items()} for i in range(len(means))], means

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the approximate log density of all rows together, [*batch]."""
        batch = broadcast_shapes(self.batch_shape, value.shape[:-1])
        if not batch:
            return self.log_evidence(value)
        values = value.expand(batch + self.event_shape).reshape(-1, *self.event_shape)
        pairs = zip(self.expand(batch).one_by_one(), values, strict=True)
        return torch.stack([one.log_evidence(y) for one, y in pairs]).reshape(batch)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw f, then y given f."""
        with torch.no_grad():
            f = self.latent_mean + self.drawn(torch.Size(sample_shape) + self.batch_shape)
            return self.likelihood.distribution(self.theta, f).sample().to(f)


class LatentMarginal(LatentRows):
    """y at n rows where f ~ N(mean, covariance), and y_i depends on f_i alone.

    Args:
        likelihood: As in LatentRows.
        theta: As in LatentRows.
        mean: As in LatentRows.
        covariance: [*batch, n, n], the covariance of f.
        approximation: That of ``log_prob``: "laplace", or "ep" for Bernoulli.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        theta: Theta,
        mean: Tensor,
        covariance: Tensor,
        approximation: str = "laplace",
    ) -> None:
        self.latent_covariance, self.approximation = covariance, approximation
        super().__init__(likelihood, theta, mean, mean.shape[:-1])

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> LatentMarginal:
        """Return this distribution with another batch shape."""
        batch = torch.Size(batch_shape)
        covariance = self.latent_covariance.expand(batch + 2 * self.event_shape)
        return self._other(*self.of_batch(batch), covariance)

    def one_by_one(self) -> list[LatentMarginal]:
        covariances = self.latent_covariance.reshape(-1, *2 * self.event_shape)
        return [self._other(*one) for one in zip(*self.each(), covariances, strict=True)]

    def _other(self, theta: Theta, mean: Tensor, covariance: Tensor) -> LatentMarginal:
        return LatentMarginal(self.likelihood, theta, mean, covariance, self.approximation)

    def latent_variance(self) -> Tensor:
        return self.latent_covariance.diagonal(dim1=-2, dim2=-1)

    def log_evidence(self, y: Tensor) -> Tensor:
        rows, K = LikelihoodRows(self.likelihood, tuple(self.theta), y), self.latent_covariance
        if self.approximation == "ep":
            return ep_log_evidence(K, self.latent_mean, rows)
        return laplace_log_evidence(K, self.latent_mean, rows, tuple(self.theta.values()))

    def drawn(self, shape: torch.Size) -> Tensor:
        root = _root(self.latent_covariance)
        e = torch.randn(shape + self.event_shape, dtype=root.dtype, device=root.device)
        return (root @ e[..., None])[..., 0]


def _root(C: Tensor) -> Tensor:
    """Return a Cholesky factor of covariances of f [*batch, n, n].

    Those that a few groups make have a rank below n, whose rounding is no cause for a warning.
    """
    root, info = torch.linalg.cholesky_ex(C)
    if not bool(info.any()):
        return root
    size = torch.finfo(C.dtype)
    mean = C.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    added = size.eps ** (2 / 3) * mean + size.tiny
    return cholesky(add_diagonal(C, added.expand(C.shape[:-1])), "covariance of f")
