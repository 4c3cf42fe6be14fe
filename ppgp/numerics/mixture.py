"""Equal mixtures over posterior draws: their cdf, true quantiles and CRPS. Every law here has batch [draw, n]."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from .univariate import cdf as component_cdf
from .univariate import is_discrete, take
from .univariate import log_prob as component_log_prob

BUDGET = 8_000_000  # numbers in the largest temporary of one chunk (64 MB in float64)
CLOSED_FORM_DRAWS = 256  # up to here the CRPS by pairs of draws is cheaper than the integral
PANELS = (1e-8, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-4, 1 - 1e-8)
NODES = 16


def cdf(law: Distribution, x: Tensor) -> Tensor:
    """P(y <= x) of the mixture: x [..., n] -> [..., n]."""
    return component_cdf(law, x.unsqueeze(-2)).mean(-2)


def density(law: Distribution, x: Tensor) -> Tensor:
    return component_log_prob(law, x.unsqueeze(-2)).exp().mean(-2)


def moments(law: Distribution) -> tuple[Tensor, Tensor]:
    """Mean and variance [n], by the law of total variance."""
    means, variances = law.mean, law.variance
    return means.mean(0), variances.mean(0) + means.var(0, correction=0)


def quantile(law: Distribution, p: float | Tensor) -> Tensor:
    """The true quantile of the mixture, [n]: a bracket that is sure, Newton inside it, bisection every third step.

    ``p``: one probability, or one a row.
    """
    mean, variance = moments(law)
    p = torch.as_tensor(p, dtype=mean.dtype, device=mean.device)
    p = p.clamp(torch.finfo(p.dtype).tiny, 1 - torch.finfo(p.dtype).eps / 2)  # a probability next to 1 rounds to 1 in float32
    centre = torch.where(torch.isfinite(mean), mean, torch.zeros_like(mean))
    spread = torch.where(torch.isfinite(variance) & (variance > 0), variance, torch.ones_like(variance)).sqrt()
    if is_discrete(law):
        return _count_quantile(law, p, centre + spread)
    x = centre + torch.special.ndtri(p) * spread
    if isinstance(law, Normal) and law.batch_shape[0] == 1:
        return x
    low, high = _bracket(law, p, centre, spread)
    x = x.clamp(low, high)
    tolerance = 4 * torch.finfo(x.dtype).eps
    for iteration in range(200):
        excess = cdf(law, x) - p
        low, high = torch.where(excess < 0, x, low), torch.where(excess >= 0, x, high)
        step = x - excess / density(law, x)
        middle = 0.5 * (low + high)
        fine = torch.isfinite(step) & (step > low) & (step < high)
        new = middle if iteration % 3 == 2 else torch.where(fine, step, middle)
        still = (high - low > tolerance * (x.abs() + spread)) & (excess != 0)
        still &= ~(fine & ((step - x).abs() <= tolerance * (x.abs() + spread)))
        if not bool(still.any()):
            return _within(law, torch.where(fine, step, x))
        x = torch.where(still, new, x)
    return _within(law, x)


def _within(law: Distribution, x: Tensor) -> Tensor:
    """x, or the end of the support where rounding has put it beyond."""
    lower = getattr(law.support, "lower_bound", None)
    if lower is None:
        return x
    lowest = torch.as_tensor(lower).to(x)
    lowest = lowest.amin(0) if lowest.ndim == 2 else lowest
    return torch.maximum(x, lowest + torch.finfo(x.dtype).tiny)


def _bracket(law: Distribution, p: Tensor, centre: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Ends with F(low) < p <= F(high), by doubling."""
    low, high = centre - spread, centre + spread
    for k in range(2000):
        wrong = cdf(law, low) >= p
        if not bool(wrong.any()):
            break
        low = torch.where(wrong, centre - spread * 2.0**k, low)
    for k in range(2000):
        wrong = cdf(law, high) < p
        if not bool(wrong.any()):
            break
        high = torch.where(wrong, centre + spread * 2.0**k, high)
    return low, high


def _count_quantile(law: Distribution, p: Tensor, start: Tensor) -> Tensor:
    low, high = torch.full_like(start, -1.0), start.ceil().clamp_min(1.0)
    while bool((short := cdf(law, high) < p).any()):
        low, high = torch.where(short, high, low), torch.where(short, high * 2 + 1, high)
    while bool((high - low > 1).any()):
        middle = torch.floor((low + high) / 2)
        enough = cdf(law, middle) >= p
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high


def crps(law: Distribution, y: Tensor) -> Tensor:
    """Continuous ranked probability score [n], in the units of y; smaller is better. Gneiting & Raftery (2007), equation 21.

    Mixtures of up to 256 normals: closed form over pairs (Grimit et al. 2006). Otherwise the integral of
    (F(x) - 1[x >= y])^2 by Gauss-Legendre between quantiles of the mixture; counts: the sum over k.
    """
    draws, n = law.batch_shape
    if is_discrete(law):
        return _count_crps(law, y)
    if isinstance(law, Normal) and draws <= CLOSED_FORM_DRAWS:
        rows, score = max(1, BUDGET // draws**2), _normal_pairs
    else:
        rows, score = max(1, BUDGET // (draws * NODES * (len(PANELS) + 2))), integral
    parts = [score(take(law, slice(i, i + rows)), y[i : i + rows]) for i in range(0, n, rows)]
    return torch.cat(parts)


def _absolute_moment(mean: Tensor, variance: Tensor) -> Tensor:
    """E|Z| for Z ~ N(mean, variance)."""
    sd = variance.sqrt().clamp_min(torch.finfo(mean.dtype).tiny)
    z = mean / sd
    pdf = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return 2 * sd * pdf + mean * (2 * torch.special.ndtr(z) - 1)


def _normal_pairs(law: Any, y: Tensor) -> Tensor:
    m, v = law.loc, law.scale.square()
    accuracy = _absolute_moment(y - m, v).mean(0)
    spread = _absolute_moment(m[:, None] - m[None, :], v[:, None] + v[None, :]).mean((0, 1))
    return accuracy - 0.5 * spread


@lru_cache(maxsize=1)
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(NODES)


def integral(law: Distribution, y: Tensor) -> Tensor:
    """The CRPS as an integral, for any law with a cdf; y is the end of a panel, so no panel holds the jump."""
    edges = torch.stack([quantile(law, p) for p in PANELS] + [y]).sort(0).values
    nodes, weights = (torch.as_tensor(a).to(y) for a in _legendre())
    half = 0.5 * (edges[1:] - edges[:-1])
    centre = 0.5 * (edges[1:] + edges[:-1])
    x = centre + half * nodes[:, None, None]
    F = cdf(law, x.reshape(-1, x.shape[-1])).reshape(x.shape)
    above = (centre >= y).to(F)
    return ((F - above).square() * weights[:, None, None] * half).sum((0, 1))


def _count_crps(law: Distribution, y: Tensor) -> Tensor:
    top = int(torch.maximum(quantile(law, 1 - 1e-12), y).max()) + 1
    total = (-y).clamp_min(0.0)  # between y and the first count F is 0 and y has passed
    for k in range(top + 1):
        F = cdf(law, torch.full_like(y, float(k)))
        before = (y - k).clamp(0.0, 1.0)  # the part of [k, k + 1) below y
        total = total + before * F.square() + (1 - before) * (1 - F).square()
    return total
