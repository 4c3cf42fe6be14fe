"""Averages of the logistic sigmoid and of its integral over a Gaussian."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

__all__ = ["expected_softplus", "log_odds"]

NODES = 12  # for Kolmogorov's distribution: E log(1 + exp f) is then accurate to 2e-8
RANGE = (0.26, 3.0)  # Kolmogorov's distribution has less than 1e-7 of its mass outside
TERMS = 20  # of the alternating series; each reduces the error by a factor of 5.83
ROOT_2 = math.sqrt(2.0)
ROOT_PI_INVERSE = 1 / math.sqrt(math.pi)


# -- E log(1 + exp f)
# --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _kolmogorov() -> tuple[np.ndarray, np.ndarray]:
    """Return 4 K^2 and weights [NODES] for K of Kolmogorov's distribution.

    The rule is the trapezoidal rule in log K.
    """
    k = np.exp(np.linspace(math.log(RANGE[0]), math.log(RANGE[1]), NODES))
    j = np.arange(1, 41)[:, None]
    terms = (-1.0) ** (j + 1) * j**2 * np.exp(-2 * (j * k) ** 2)
    weight = 8 * k * terms.sum(0) * k
    return 4 * k**2, weight / weight.sum()


def expected_softplus(mean: Tensor, variance: Tensor) -> Tensor:
    """Compute E log(1 + exp f) for f ~ N(mean, variance), to 2e-8 for any mean and variance.

    A logistic variable L is normal with a standard deviation of 2 K, where K has Kolmogorov's
    distribution (Andrews & Mallows 1974), and log(1 + exp f) is E max(f - L, 0). Given K, this is
    the mean of the positive part of a normal variable, which has a closed form.
    """
    spread, weight = (torch.as_tensor(x).to(mean) for x in _kolmogorov())
    shrink = (2 * (variance + spread.reshape((-1,) + (1,) * mean.ndim))).rsqrt()
    z = mean * shrink
    inside = torch.tensordot(weight, torch.erf(z), 1)
    around = torch.tensordot(weight, torch.exp(-z.square()) / shrink, 1)
    return 0.5 * (mean * (1 + inside) + ROOT_PI_INVERSE * around)


# -- log E sigmoid(f)
# --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _alternating() -> np.ndarray:
    """Return the factors [TERMS] of the terms of an alternating series, signs included.

    Cohen, Rodriguez Villegas & Zagier (2000).
    """
    d = (3 + math.sqrt(8)) ** TERMS
    d = 0.5 * (d + 1 / d)
    b, c, factors = -1.0, -d, []
    for k in range(TERMS):
        c = b - c
        factors.append(c / d)
        b = b * (k + TERMS) * (k - TERMS) / ((k + 0.5) * (k + 1))
    return np.array(factors)


def _log_tail(z: Tensor) -> Tensor:
    """Return log P(Z <= z) for z <= 0.

    The derivative of torch's log_ndtr loses its digits far out, as a difference of two squares.
    """
    return -0.5 * z.square() + torch.log(0.5 * torch.special.erfcx(-z / ROOT_2))


def _log_exponentials(mean: Tensor, variance: Tensor, sd: Tensor) -> Tensor:
    """Return log E[exp(k f); f < 0] for k = 1 .. TERMS, [TERMS, ...]."""
    k = torch.arange(1, TERMS + 1, dtype=mean.dtype, device=mean.device).reshape(
        (-1,) + (1,) * mean.ndim
    )
    z = mean / sd
    u = z + k * sd
    inner = k * (mean + 0.5 * k * variance) + torch.special.log_ndtr(-u.clamp_max(0.0))
    outer = -0.5 * z.square() + torch.log(0.5 * torch.special.erfcx(u.clamp_min(0.0) / ROOT_2))
    return torch.where(u < 0, inner, outer)


def log_odds(mean: Tensor, variance: Tensor) -> Tensor:
    """Compute log p - log(1 - p) for p = E sigmoid(f), f ~ N(mean, variance), variance > 0.

    It is accurate to 1e-14 relative to the smaller of p and 1 - p. For f < 0 the sigmoid is the
    alternating series of exp(k f), whose means have a closed form; for f > 0 it is 1 minus that of
    -f. Few terms sum the series to rounding, since they are moments of a distribution on [0, 1].
    """
    sd = variance.sqrt()
    low = torch.where(mean > 0, -mean, mean)  # p is then at most one half
    factors = torch.as_tensor(_alternating()).to(mean).reshape((-1,) + (1,) * mean.ndim)
    below, above = (_log_exponentials(m, variance, sd) for m in (low, -low))
    top = below[0].detach()
    beyond = torch.exp(_log_tail(low / sd) - top)  # P(f > 0)
    share = (factors * (torch.exp(below - top) - torch.exp(above - top))).sum(0) + beyond
    log_p = share.log() + top
    odds = log_p - torch.log1p(-log_p.exp())
    return torch.where(mean > 0, -odds, odds)
