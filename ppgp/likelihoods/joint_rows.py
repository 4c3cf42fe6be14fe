"""The joint distribution of y at several rows, where f is jointly Gaussian."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..numerics.cholesky import add_diagonal, cholesky
from ..numerics.latent_ep import ep_log_evidence
from ..numerics.latent_laplace import laplace_log_evidence
from ..numerics.univariate import JointRows
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

    def information(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return the Fisher information about f_i, [n]."""
        return self.likelihood.metric(self._theta(parameters), f[None])[:, 0, 0]

    def tilted(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the averages of the rows over f_i ~ N(mean_i, variance_i), for EP."""
        assert isinstance(self.likelihood, Bernoulli)
        return self.likelihood.tilted(mean, variance, self.y)


class LatentMarginal(JointRows):
    """y at n rows where f ~ N(mean, covariance), and y_i depends on f_i alone.

    ``log_prob`` is an approximation of the log density; samples are exact.

    Args:
        likelihood: A likelihood of one function of x, with slopes.
        theta: {site: [*batch]} of the likelihood.
        mean: [*batch, n], the mean of f.
        covariance: [*batch, n, n], the covariance of f.
        approximation: That of ``log_prob``: "laplace", or "ep" for Bernoulli.
    """

    arg_constraints = {}  # type: ignore[assignment] # Pyro annotates a property

    def __init__(
        self,
        likelihood: Likelihood,
        theta: Theta,
        mean: Tensor,
        covariance: Tensor,
        approximation: str = "laplace",
    ) -> None:
        self.likelihood, self.theta, self.approximation = likelihood, theta, approximation
        self.latent_mean, self.latent_covariance = mean, covariance
        super().__init__(mean.shape[:-1], mean.shape[-1:], validate_args=False)

    @property
    def support(self) -> object:  # type: ignore[override] # a class attribute in Pyro
        """The support of y."""
        one = self.likelihood.distribution(self.theta, self.latent_mean).support
        return constraints.independent(one, 1)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> LatentMarginal:
        """Return this distribution with another batch shape."""
        batch, own = torch.Size(batch_shape), len(self.batch_shape)
        mean = self.latent_mean.expand(batch + self.event_shape)
        covariance = self.latent_covariance.expand(batch + 2 * self.event_shape)
        theta = {k: v.expand(batch + v.shape[own:]) for k, v in self.theta.items()}
        return LatentMarginal(self.likelihood, theta, mean, covariance, self.approximation)

    def by_row(self) -> Distribution:
        variance = self.latent_covariance.diagonal(dim1=-2, dim2=-1)
        return self.likelihood.marginal(self.theta, self.latent_mean, variance)

    @property
    def mean(self) -> Tensor:
        """The mean of each row, [*batch, n]."""
        return self.by_row().mean

    @property
    def variance(self) -> Tensor:
        """The variance of each row, [*batch, n]."""
        return self.by_row().variance

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the approximate log density of all rows together, [*batch]."""
        batch = torch.broadcast_shapes(self.batch_shape, value.shape[:-1])
        if not batch:
            return self._log_evidence(self.theta, self.latent_mean, self.latent_covariance, value)
        whole, values = self.expand(batch), value.expand(batch + self.event_shape)
        n = self.event_shape[0]
        means, targets = whole.latent_mean.reshape(-1, n), values.reshape(-1, n)
        covariances = whole.latent_covariance.reshape(-1, n, n)
        theta = {k: v.reshape(-1, *v.shape[len(batch) :]) for k, v in whole.theta.items()}
        found = [
            self._log_evidence({k: v[i] for k, v in theta.items()}, *one)
            for i, one in enumerate(zip(means, covariances, targets, strict=True))
        ]
        return torch.stack(found).reshape(batch)

    def _log_evidence(self, theta: Theta, mean: Tensor, covariance: Tensor, y: Tensor) -> Tensor:
        rows = LikelihoodRows(self.likelihood, tuple(theta), y)
        if self.approximation == "ep":
            return ep_log_evidence(covariance, mean, rows)
        return laplace_log_evidence(covariance, mean, rows, tuple(theta.values()))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw f, then y given f."""
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.latent_mean.shape
            root = _root(self.latent_covariance)
            e = torch.randn(shape, dtype=root.dtype, device=root.device)
            f = self.latent_mean + (root @ e[..., None])[..., 0]
            return self.likelihood.distribution(self.theta, f).sample().to(f)


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
