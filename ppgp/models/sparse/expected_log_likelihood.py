"""The distribution that makes a sparse variational GP a Pyro program."""

from __future__ import annotations

from collections.abc import Sequence

import pyro.distributions as dist
import torch
from torch import Tensor

from ...likelihoods.base import Likelihood, Theta


class Expected(dist.TorchDistribution):
    """y where f ~ N(mean, variance) per row, with log density E log p(y | f), not log E p(y | f).

    By Jensen's inequality it is at most the log density of the marginal distribution, from which
    ``sample`` draws. With it the ELBO of a guide on the inducing variables is that of Hensman,
    Matthews & Ghahramani (2015), and MCMC draws from their optimal q.

    Args:
        likelihood: A member of ``ppgp.likelihoods``.
        theta: Its sites.
        mean: The mean of f, [n], or [K, n] for K latent functions.
        variance: The variance of f, of the same shape.
    """

    arg_constraints = {}  # type: ignore[assignment] # Pyro annotates a property

    def __init__(
        self, likelihood: Likelihood, theta: Theta, mean: Tensor, variance: Tensor
    ) -> None:
        self.likelihood = likelihood
        self.theta = theta
        self.latent_mean = mean
        self.latent_variance = variance
        batch = mean.shape
        if likelihood.latents > 1:
            batch = mean.shape[:-2] + mean.shape[-1:]
        super().__init__(batch, torch.Size(), validate_args=False)

    @property
    def support(self) -> object:  # type: ignore[override] # a class attribute in Pyro
        """The support of y."""
        return self.likelihood.distribution(self.theta, self.latent_mean).support

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Expected:
        """Return this distribution with another batch shape."""
        shape = torch.Size(batch_shape)
        if self.likelihood.latents > 1:
            shape = shape[:-1] + self.latent_mean.shape[-2:-1] + shape[-1:]
        mean, variance = self.latent_mean.expand(shape), self.latent_variance.expand(shape)
        return Expected(self.likelihood, self.theta, mean, variance)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return E log p(value | f) over f."""
        return self.likelihood.expected(self.theta, self.latent_mean, self.latent_variance, value)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw f, then y given f."""
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.latent_mean.shape
            e = torch.randn(shape, dtype=self.latent_mean.dtype, device=self.latent_mean.device)
            f = self.latent_mean + self.latent_variance.clamp_min(0.0).sqrt() * e
            return self.likelihood.distribution(self.theta, f).sample().to(f)
