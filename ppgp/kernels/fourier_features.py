"""Functions drawn from a Gaussian-process prior by random Fourier features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..runtime.seeding import standard_normal, standard_uniform

Path = Callable[[Tensor], Tensor]  # X [m, d] -> values [samples, m]
BUDGET = 4_000_000  # the most numbers in a temporary tensor of one block of rows


@dataclass(frozen=True)
class Draw:
    """The settings of a draw of functions.

    Attributes:
        samples: The number of functions.
        features: The number of features per function.
        generator: The source of random numbers.
        like: A tensor with the dtype and device of the results.
    """

    samples: int
    features: int
    generator: torch.Generator
    like: Tensor

    def normal(self, *shape: int) -> Tensor:
        """Return draws of N(0, 1)."""
        return standard_normal(self.generator, *shape).to(self.like)

    def gamma(self, shape: float, *size: int) -> Tensor:
        """Return draws of Gamma(shape, rate 1).

        They are quantiles of uniform numbers, as torch's own sampler takes no generator.
        """
        from scipy.special import gammaincinv

        u = standard_uniform(self.generator, *size)
        return torch.from_numpy(gammaincinv(shape, u.numpy())).to(self.like)


def fourier(draw: Draw, frequencies: Tensor, variance: Tensor) -> Path:
    """Return sqrt(variance / L) sum_j a_j cos(w_j x) + b_j sin(w_j x), with a and b ~ N(0, 1).

    Rahimi & Recht (2007). Each function has its own frequencies, so that mean and covariance over
    functions are exactly those of the kernel, for any L. A larger L makes the functions closer to
    Gaussian: the excess kurtosis of f(x) - f(x') is of order 1 / L. (With frequencies shared by all
    functions the covariance itself would have a standard error of up to variance / sqrt(2 L).)

    Args:
        draw: The settings.
        frequencies: The frequencies w, [samples, L, d].
        variance: The variance of the kernel.

    Returns:
        A function from X [m, d] to values [samples, m].
    """
    samples, L, _ = frequencies.shape
    a = (variance / L).sqrt() * draw.normal(samples, 1, L)
    b = (variance / L).sqrt() * draw.normal(samples, 1, L)

    def path(X: Tensor) -> Tensor:
        blocks = []
        for rows in X.split(max(1, BUDGET // (samples * L))):
            angle = rows @ frequencies.mT  # [samples, m, L]
            blocks.append((a * angle.cos() + b * angle.sin()).sum(-1))
        return torch.cat(blocks, -1)

    return path


def gaussian_frequencies(draw: Draw, d: int, lengthscale: Tensor) -> Tensor:
    """Return N(0, 1 / lengthscale^2), [samples, L, d]: the spectral density of RBF."""
    return draw.normal(draw.samples, draw.features, d) / lengthscale


def student_frequencies(draw: Draw, d: int, lengthscale: Tensor, nu: float) -> Tensor:
    """Return Student's t with 2 nu degrees of freedom, the spectral density of Matern nu.

    Rasmussen & Williams (2006), equation 4.15.
    """
    # chi-squared with 2 nu degrees of freedom, over 2 nu
    shared = draw.gamma(nu, draw.samples, draw.features, 1) / nu
    root = shared.clamp_min(torch.finfo(shared.dtype).tiny).sqrt()
    return gaussian_frequencies(draw, d, lengthscale) / root


def gamma_frequencies(draw: Draw, d: int, lengthscale: Tensor, alpha: float) -> Tensor:
    """Return Gaussians of precision Gamma(alpha, alpha), the mixture of RationalQuadratic.

    Rasmussen & Williams (2006), equation 4.20.
    """
    shared = draw.gamma(alpha, draw.samples, draw.features, 1) / alpha
    return gaussian_frequencies(draw, d, lengthscale) * shared.sqrt()
