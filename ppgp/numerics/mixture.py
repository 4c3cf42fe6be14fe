"""Equal mixtures over posterior draws: their cdf, true quantiles and CRPS. Every law here has batch [draw, n]."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution, Normal

from . import tails, univariate
from .blocks import each_block
from .roots import Newton, root
from .univariate import cdf as component_cdf
from .univariate import is_discrete, take
from .univariate import log_prob as component_log_prob

BUDGET = 8_000_000  # numbers in the largest temporary of one chunk (64 MB in float64)
CLOSED_FORM_DRAWS = 256  # up to here the CRPS by pairs of draws is cheaper than the integral
PANELS = (1e-8, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-4, 1 - 1e-8)
NODES = 16
FINE, ROUGH = 4, 64  # roundings within which a quantile and a tail quantile are found


def cdf(law: Distribution, x: Tensor) -> Tensor:
    """P(y <= x) of the mixture: x [..., n] -> [..., n]."""
    return each_block(_cdf, law, x)


def _cdf(law: Distribution, x: Tensor) -> Tensor:
    return component_cdf(law, x.unsqueeze(-2)).mean(-2)


def density(law: Distribution, x: Tensor) -> Tensor:
    return component_log_prob(law, x.unsqueeze(-2)).exp().mean(-2)


def moments(law: Distribution) -> tuple[Tensor, Tensor]:
    """Mean and variance [n], by the law of total variance."""
    mean, variance = each_block(_moments, law)
    return mean, variance


def _moments(law: Distribution) -> Tensor:
    means, variances = law.mean, law.variance
    return torch.stack([means.mean(0), variances.mean(0) + means.var(0, correction=0)])


def log_density(law: Distribution, x: Tensor) -> Tensor:
    """Log density (or mass) of the mixture: x [..., n] -> [..., n]."""
    return each_block(_log_density, law, x)


def _log_density(law: Distribution, x: Tensor) -> Tensor:
    return torch.logsumexp(component_log_prob(law, x.unsqueeze(-2)), -2) - math.log(
        law.batch_shape[0]
    )


def log_tails(law: Distribution, x: Tensor) -> tuple[Tensor, Tensor]:
    """(log P(y <= x), log P(y > x)) of the mixture, neither from 1 minus the other."""
    below, above = each_block(_log_tails, law, x)
    return below, above


def _log_tails(law: Distribution, x: Tensor) -> Tensor:
    return torch.stack([_log_mean(tail, law) for tail in tails.log_tails(law, x.unsqueeze(-2))])


def log_tail(law: Distribution, x: Tensor, upper: bool) -> Tensor:
    """One of ``log_tails``: the second where ``upper``."""
    return _log_mean(tails.log_tail(law, x.unsqueeze(-2), upper), law)


def _log_mean(tail: Tensor, law: Distribution) -> Tensor:
    """Log of the mean over draws of probabilities whose logarithms are [..., draw, n]."""
    draws = law.batch_shape[0]
    if draws == 1:
        return tail.squeeze(-2)
    return (torch.logsumexp(tail, -2) - math.log(draws)).clamp_max(0.0)


def sd(law: Distribution) -> Tensor:
    """Standard deviation [n], also where its square over- or underflows."""
    return each_block(_sd, law)


def _sd(law: Distribution) -> Tensor:
    _, variance = moments(law)
    most, least = torch.finfo(variance.dtype).max, torch.finfo(variance.dtype).tiny
    doubtful = ~((variance > least / torch.finfo(variance.dtype).eps) & (variance < most))
    if not bool(doubtful.any()):
        return variance.sqrt()
    means, sds = law.mean, univariate.sd(law)
    apart = (means - means.mean(0)).abs()
    unit = torch.maximum(sds.amax(0), apart.amax(0))
    fine = torch.isfinite(unit) & (unit > 0)
    safe = torch.where(fine, unit, torch.ones_like(unit))
    total = safe * ((sds / safe).square() + (apart / safe).square()).mean(0).sqrt()
    return torch.where(doubtful, torch.where(fine, total, unit), variance.sqrt())


def middle(law: Distribution) -> Tensor:
    """[n], the mean, or where there is none a location of the law: a point to search from."""
    mean = law.mean.mean(0)
    found = getattr(law, "loc", None)
    if bool(torch.isfinite(mean).all()):
        return mean
    place = torch.zeros_like(mean) if found is None or found.ndim != 2 else found.mean(0)
    return torch.where(torch.isfinite(mean), mean, place)


def extent(law: Distribution) -> Tensor:
    """[n], the sd, or where it is not finite and positive the median scale of the components: a unit to search in."""
    spread = sd(law)
    fine = torch.isfinite(spread) & (spread > 0)
    if bool(fine.all()):
        return spread
    found = getattr(law, "scale", None)
    other = (
        torch.ones_like(spread)
        if found is None or found.ndim != 2
        else found.expand(law.batch_shape).median(0).values
    )
    return torch.where(
        fine,
        spread,
        torch.where(torch.isfinite(other) & (other > 0), other, torch.ones_like(other)),
    )


def quantile(law: Distribution, p: float | Tensor) -> Tensor:
    """The true quantile of the mixture, [n].

    ``p``: one probability, or one per row.
    """
    return each_block(_quantile, law, torch.as_tensor(p, dtype=torch.float64))


def _quantile(law: Distribution, p: Tensor) -> Tensor:
    centre, spread = middle(law), extent(law)
    p = p.to(centre)
    p = p.clamp(
        torch.finfo(p.dtype).tiny, 1 - torch.finfo(p.dtype).eps / 2
    )  # a probability next to 1 rounds to 1 in float32
    if is_discrete(law):
        return _count_quantile(law, p, centre + spread)
    if isinstance(law, Normal) and law.batch_shape[0] == 1:
        return law.loc[0] + torch.special.ndtri(p) * law.scale[0]
    eps = torch.finfo(centre.dtype).eps

    def newton(part: Distribution, x: Tensor, rows: Tensor, p: Tensor) -> Newton:
        excess, height = cdf(part, x) - p, density(part, x)
        excess = torch.where(excess.abs() <= eps * p, torch.zeros_like(excess), excess)
        # the spread of the whole says nothing of a sharp component in it, nor of the lower end of a heavy tail
        return excess, excess / height, 4 * eps * (x.abs() + torch.fmin(spread[rows], 1 / height))

    start = centre + torch.special.ndtri(p) * spread
    return _within(law, root(law, newton, start, p, centre, spread, FINE))


def tail_quantile(law: Distribution, log_p: Tensor, upper: bool) -> Tensor:
    """[n], near the x with log P(y <= x) = log_p, or log P(y > x) = log_p where ``upper``; log_p [n] may be far below 0.

    The last digits are left to the caller, who may need them to agree with ``log_tail``.
    """
    return each_block(lambda part, each: _tail_quantile(part, each, upper), law, log_p)


def _tail_quantile(law: Distribution, log_p: Tensor, upper: bool) -> Tensor:
    guess = _normal_tail(log_p)
    if isinstance(law, Normal) and law.batch_shape[0] == 1:
        return law.loc[0] - guess * law.scale[0] if upper else law.loc[0] + guess * law.scale[0]
    centre, spread = middle(law), extent(law)
    eps = torch.finfo(centre.dtype).eps

    def newton(part: Distribution, x: Tensor, rows: Tensor, log_p: Tensor) -> Newton:
        tail = log_tail(part, x, upper)
        excess = log_p - tail if upper else tail - log_p
        return excess, excess * torch.exp(tail - log_density(part, x)), ROUGH * eps * x.abs()

    start = centre - guess * spread if upper else centre + guess * spread
    return _within(law, root(law, newton, start, log_p, centre, spread, ROUGH))


def _normal_tail(log_p: Tensor) -> Tensor:
    """z with log P(Z <= z) = log_p for the standard normal law, log_p of any size."""
    return torch.as_tensor(special.ndtri_exp(log_p.double().cpu().numpy())).to(log_p)


def _within(law: Distribution, x: Tensor) -> Tensor:
    """x, or the end of the support where rounding has put it beyond."""
    lower = getattr(law.support, "lower_bound", None)
    if lower is None:
        return x
    lowest = torch.as_tensor(lower).to(x)
    lowest = lowest.amin(0) if lowest.ndim == 2 else lowest
    return torch.maximum(x, lowest + torch.finfo(x.dtype).tiny)


def _count_quantile(law: Distribution, p: Tensor, start: Tensor) -> Tensor:
    if univariate.has_only_mass(law):
        return _counted(law, p.expand(torch.broadcast_shapes(p.shape, start.shape)))
    low, high = torch.full_like(start, -1.0), start.ceil().clamp_min(1.0)
    while bool((short := cdf(law, high) < p).any()):
        low, high = torch.where(short, high, low), torch.where(short, high * 2 + 1, high)
    while bool((high - low > 1).any()):
        middle = torch.floor((low + high) / 2)
        enough = cdf(law, middle) >= p
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high


def _counted(law: Distribution, p: Tensor) -> Tensor:
    """The number of counts whose cdf lies below p, the mass function being summed once, a block of counts at a time."""
    n = p.shape[-1]
    most = max(1, BUDGET // (law.batch_shape[0] * n))
    first, size, found = 0, min(16, most), torch.zeros_like(p)
    total = torch.zeros(n, dtype=p.dtype, device=p.device)
    while True:
        univariate.check_reach(first)
        k = torch.arange(first, first + size, dtype=p.dtype, device=p.device)
        upto = density(law, k[:, None].expand(size, n)).cumsum(0)
        reached = total + upto.reshape(size, *(1,) * (p.ndim - 1), n)
        found = found + (reached < p).sum(0).to(found)
        stuck = (reached[-1] == total) & (
            total > 0.5
        )  # rounding may keep the sum below a p next to 1
        if bool(((reached[-1] >= p) | stuck).all()):
            return found
        total, first, size = reached[-1], first + size, min(2 * size, most)


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
