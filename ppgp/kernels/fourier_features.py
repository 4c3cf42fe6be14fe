"""Functions drawn from a Gaussian-process prior, once, to be evaluated anywhere: random Fourier features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Path = Callable[[Tensor], Tensor]  # X [m, d] -> values [samples, m]
BUDGET = 4_000_000  # numbers in the largest temporary of one block of rows


@dataclass(frozen=True)
class Draw:
    """How to draw: so many functions of so many features each, random numbers from ``generator``, dtype and device of ``like``."""

    samples: int
    features: int
    generator: torch.Generator
    like: Tensor

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64).to(self.like)

    def gamma(self, shape: float, *size: int) -> Tensor:
        """Gamma(shape, rate 1) through its quantile function: torch's own sampler takes no generator."""
        from scipy.special import gammaincinv

        u = torch.rand(*size, generator=self.generator, dtype=torch.float64)
        return torch.from_numpy(gammaincinv(shape, u.numpy())).to(self.like)


def fourier(draw: Draw, frequencies: Tensor, variance: Tensor) -> Path:
    """sqrt(variance / L) sum_j a_j cos(w_j x) + b_j sin(w_j x), a and b ~ N(0, 1). Rahimi & Recht (2007).

    Each function has frequencies of its own, [samples, L, d], so that over functions mean and covariance are those of the kernel
    exactly, for any L. What L buys is normality: the excess kurtosis of f(x) - f(x') is of order 1 / L. (With frequencies
    shared by all functions the covariance itself would be off, by up to variance / sqrt(2 L) a standard error.)
    """
    samples, L, _ = frequencies.shape
    a, b = (
        (variance / L).sqrt() * draw.normal(samples, 1, L),
        (variance / L).sqrt() * draw.normal(samples, 1, L),
    )

    def path(X: Tensor) -> Tensor:
        blocks = []
        for rows in X.split(max(1, BUDGET // (samples * L))):
            angle = rows @ frequencies.mT  # [samples, m, L]
            blocks.append((a * angle.cos() + b * angle.sin()).sum(-1))
        return torch.cat(blocks, -1)

    return path


def gaussian_frequencies(draw: Draw, d: int, lengthscale: Tensor) -> Tensor:
    """N(0, 1 / lengthscale^2), [samples, L, d]: the spectral law of the squared exponential."""
    return draw.normal(draw.samples, draw.features, d) / lengthscale


def student_frequencies(draw: Draw, d: int, lengthscale: Tensor, nu: float) -> Tensor:
    """Student's t with 2 nu degrees of freedom: the spectral law of Matern nu. Rasmussen & Williams (2006), equation 4.15."""
    shared = (
        draw.gamma(nu, draw.samples, draw.features, 1) / nu
    )  # chi-squared of 2 nu degrees over 2 nu
    return (
        gaussian_frequencies(draw, d, lengthscale)
        / shared.clamp_min(torch.finfo(shared.dtype).tiny).sqrt()
    )


def gamma_frequencies(draw: Draw, d: int, lengthscale: Tensor, alpha: float) -> Tensor:
    """Gaussians of precision Gamma(alpha, alpha): the rational quadratic. Rasmussen & Williams (2006), equation 4.20."""
    shared = draw.gamma(alpha, draw.samples, draw.features, 1) / alpha
    return gaussian_frequencies(draw, d, lengthscale) * shared.sqrt()
