"""The law by which a sparse variational GP is a Pyro program."""

from __future__ import annotations

from collections.abc import Sequence

import pyro.distributions as dist
import torch
from torch import Tensor

from .base import Likelihood, Theta


class Expected(dist.TorchDistribution):
    """y given f ~ N(mean, variance) row by row, with the log density E log p(y given f) in place of log E p(y given f).

    By Jensen's inequality it lies below that of the marginal law, which ``sample`` draws from. Under it the ELBO of a guide on
    the inducing variables is that of Hensman, Matthews & Ghahramani (2015), and MCMC draws the optimal q of them.

    Args:
        likelihood: a member of ``ppgp.likelihoods``.
        theta: its sites.
        mean, variance: of f, [n], or [K, n] for K latent functions.
    """

    arg_constraints = {}  # type: ignore[assignment]

    def __init__(
        self, likelihood: Likelihood, theta: Theta, mean: Tensor, variance: Tensor
    ) -> None:
        self.likelihood, self.theta, self.latent_mean, self.latent_variance = (
            likelihood,
            theta,
            mean,
            variance,
        )
        batch = mean.shape[:-2] + mean.shape[-1:] if likelihood.latents > 1 else mean.shape
        super().__init__(batch, torch.Size(), validate_args=False)

    @property
    def support(self) -> object:  # type: ignore[override]
        return self.likelihood.distribution(self.theta, self.latent_mean).support

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Expected:
        shape = torch.Size(batch_shape)
        if self.likelihood.latents > 1:
            shape = shape[:-1] + self.latent_mean.shape[-2:-1] + shape[-1:]
        return Expected(
            self.likelihood,
            self.theta,
            self.latent_mean.expand(shape),
            self.latent_variance.expand(shape),
        )

    def log_prob(self, value: Tensor) -> Tensor:
        return self.likelihood.expected(self.theta, self.latent_mean, self.latent_variance, value)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.latent_mean.shape
            e = torch.randn(shape, dtype=self.latent_mean.dtype, device=self.latent_mean.device)
            f = self.latent_mean + self.latent_variance.clamp_min(0.0).sqrt() * e
            return self.likelihood.distribution(self.theta, f).sample().to(f)
