"""Equal mixtures over posterior draws: cdf, quantiles, moments and CRPS.

Every distribution here has batch [draw, n]; its mixture over draws is the predictive distribution
of n rows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution, Normal

from . import normal_differences, tails, univariate
from .blocks import by_rows, each_block
from .known_in_part import KnownInPart
from .roots import WORTH_IT, Newton, root
from .standard_normal import ROOT_2PI, pdf
from .univariate import RowsOnDemand, distinct_rows, is_discrete, take
from .univariate import cdf as component_cdf
from .univariate import log_prob as component_log_prob

BUDGET = 8_000_000  # numbers in the largest temporary of one chunk (64 MB in float64)
CLOSED_FORM_DRAWS = 256  # up to this number, the CRPS over pairs of draws is cheaper
PANELS = (1e-8, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-4, 1 - 1e-8)
NODES = 16
FINE = 4  # accuracy of a quantile, in rounding errors
REST = 1e-14  # probability beyond the counts that the CRPS is summed over, on either side
COUNTS = 16  # counts of each row whose cdf is computed at once
NEAR = 1e-4  # distance to p, relative to it, below which Newton's steps are those of the cdf
ROOT_2 = math.sqrt(2)
STEEPEST = math.exp(-0.5) / ROOT_2PI  # slope of the standard normal density
ROUGH = 64  # accuracy of a tail quantile, in rounding errors


@by_rows
def cdf(distribution: Distribution, x: Tensor) -> Tensor:
    """Return P(y <= x) of the mixture, [..., n], for x [..., n]."""
    return component_cdf(distribution, x.unsqueeze(-2)).mean(-2)


def density(distribution: Distribution, x: Tensor) -> Tensor:
    """Return the density (or mass) of the mixture, [..., n], for x [..., n]."""
    if isinstance(distribution, RowsOnDemand):
        return each_block(density, distribution, x)
    return component_log_prob(distribution, x.unsqueeze(-2)).exp().mean(-2)


def cdf_and_density(distribution: Distribution, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cdf and the density of the mixture, [..., n] each, for x [..., n]."""
    if not isinstance(distribution, Normal):
        return cdf(distribution, x), density(distribution, x)
    scale = distinct_rows(distribution.scale)
    z = (distribution.loc - x.unsqueeze(-2)) / (scale * ROOT_2)
    heights = z.square().neg_().exp_() / scale
    return 0.5 * torch.special.erfc(z).mean(-2), heights.mean(-2) / ROOT_2PI


@by_rows
def mean(distribution: Distribution) -> Tensor:
    """Return the mean of the mixture, [n]."""
    means = distribution.mean
    return means[0] if len(means) == 1 else means.mean(0)


@by_rows
def moments(distribution: Distribution) -> Tensor:
    """Return mean and variance of the mixture, [2, n], by the law of total variance."""
    means = distribution.mean
    if isinstance(distribution, Normal):
        variances = distinct_rows(distribution.scale).square()
    else:
        variances = distribution.variance
    if len(means) == 1:
        return torch.stack([means[0], variances.expand(means.shape)[0]])
    mean = means.mean(0)
    return torch.stack([mean, variances.mean(0) + (means - mean).square().mean(0)])


@by_rows
def log_density(distribution: Distribution, x: Tensor) -> Tensor:
    """Return the log density (or mass) of the mixture, [..., n], for x [..., n]."""
    return torch.logsumexp(component_log_prob(distribution, x.unsqueeze(-2)), -2) - math.log(
        distribution.batch_shape[0]
    )


@by_rows
def log_tails(distribution: Distribution, x: Tensor) -> Tensor:
    """Return log P(y <= x) and log P(y > x), [2, ..., n], each computed on its own."""
    return torch.stack(
        [_log_mean(tail, distribution) for tail in tails.log_tails(distribution, x.unsqueeze(-2))]
    )


def log_tail(distribution: Distribution, x: Tensor, upper: bool) -> Tensor:
    """Return one of ``log_tails``: log P(y > x) if ``upper``, else log P(y <= x)."""
    if isinstance(distribution, RowsOnDemand):
        return each_block(lambda part, each: log_tail(part, each, upper), distribution, x)
    return _log_mean(tails.log_tail(distribution, x.unsqueeze(-2), upper), distribution)


def _log_mean(tail: Tensor, distribution: Distribution) -> Tensor:
    """Return the log of the mean over draws of probabilities with logarithms [..., draw, n]."""
    draws = distribution.batch_shape[0]
    if draws == 1:
        return tail.squeeze(-2)
    return (torch.logsumexp(tail, -2) - math.log(draws)).clamp_max(0.0)


@by_rows
def sd(distribution: Distribution) -> Tensor:
    """Return the standard deviation [n], also where its square overflows or underflows."""
    if isinstance(distribution, Normal) and distribution.batch_shape[0] == 1:
        return distribution.scale[0]
    _, variance = moments(distribution)
    doubtful = _doubtful(variance)
    if not bool(doubtful.any()):
        return variance.sqrt()
    means, sds = distribution.mean, univariate.sd(distribution)
    apart = (means - means.mean(0)).abs()
    unit = torch.maximum(sds.amax(0), apart.amax(0))
    fine = torch.isfinite(unit) & (unit > 0)
    safe = torch.where(fine, unit, torch.ones_like(unit))
    total = safe * ((sds / safe).square() + (apart / safe).square()).mean(0).sqrt()
    return torch.where(doubtful, torch.where(fine, total, unit), variance.sqrt())


def _doubtful(variance: Tensor) -> Tensor:
    """Return whether a square may have overflowed or underflowed."""
    limits = torch.finfo(variance.dtype)
    return ~((variance > limits.tiny / limits.eps) & (variance < limits.max))


def _middle_and_extent(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Return ``middle`` and ``extent``, from one pass where both have their simple form."""
    mean, variance = moments(distribution)
    if bool(torch.isfinite(mean).all()) and not bool(_doubtful(variance).any()):
        return mean, variance.sqrt()
    return middle(distribution), extent(distribution)


def middle(distribution: Distribution) -> Tensor:
    """Return a point to start a search from, [n]: the mean, or a location if there is none."""
    if isinstance(distribution, RowsOnDemand):
        return each_block(middle, distribution)
    mean = distribution.mean.mean(0)
    if bool(torch.isfinite(mean).all()):
        return mean
    location = torch.zeros_like(mean)
    loc = getattr(distribution, "loc", None)
    if loc is not None and loc.ndim == 2:
        location = loc.mean(0)
    return torch.where(torch.isfinite(mean), mean, location)


def extent(distribution: Distribution) -> Tensor:
    """Return a unit of length for a search, [n].

    It is the standard deviation, or where that is not finite and positive the median scale of the
    components.
    """
    spread = sd(distribution)
    fine = torch.isfinite(spread) & (spread > 0)
    if bool(fine.all()):
        return spread
    other = torch.ones_like(spread)
    scale = getattr(distribution, "scale", None)
    if scale is not None and scale.ndim == 2:
        other = scale.expand(distribution.batch_shape).median(0).values
    usable = torch.isfinite(other) & (other > 0)
    return torch.where(fine, spread, torch.where(usable, other, torch.ones_like(other)))


def quantile(distribution: Distribution, p: float | Tensor) -> Tensor:
    """Return the quantile of the mixture, [n].

    Args:
        distribution: Of batch [draw, n].
        p: One probability, or one per row.
    """
    return each_block(_quantile, distribution, torch.as_tensor(p, dtype=torch.float64))


def _quantile(distribution: Distribution, p: Tensor) -> Tensor:
    if isinstance(distribution, KnownInPart):
        return distribution.quantile(p)
    centre, spread = _middle_and_extent(distribution)
    p = p.to(centre)
    # a probability next to 1 rounds to 1 in float32
    p = p.clamp(torch.finfo(p.dtype).tiny, 1 - torch.finfo(p.dtype).eps / 2)
    if is_discrete(distribution):
        return _count_quantile(distribution, p, centre + spread)
    if isinstance(distribution, Normal) and distribution.batch_shape[0] == 1:
        return distribution.loc[0] + torch.special.ndtri(p) * distribution.scale[0]
    eps = torch.finfo(centre.dtype).eps
    steepest = _steepest(distribution)

    def newton(part: Distribution, x: Tensor, rows: Tensor, p: Tensor) -> Newton:
        below, height = cdf_and_density(part, x)
        excess = below - p
        excess = torch.where(excess.abs() <= eps * p, torch.zeros_like(excess), excess)
        # on the scale of a normal variable the cdf is closer to a line
        z = torch.special.ndtri(below)
        far = excess.abs() > NEAR * torch.minimum(p, 1 - p)
        move = torch.where(far, (z - torch.special.ndtri(p)) * pdf(z), excess)
        # the standard deviation alone would be too long for a narrow component or the lower end of
        # a heavy tail
        reach = 4 * eps * (x.abs() + torch.fmin(spread[rows], 1 / height))
        reach = torch.where(far, torch.zeros_like(reach), reach)
        bend = None
        if steepest is not None:
            each = steepest[rows if len(steepest) > 1 else [0]]
            bend = torch.where(far, torch.inf, 0.5 * each / height)
        return Newton(excess, move / height, reach, bend)

    start = centre + torch.special.ndtri(p) * spread
    return _within(distribution, root(distribution, newton, start, p, centre, spread, FINE))


def _steepest(distribution: Distribution) -> Tensor | None:
    """Return a bound on the slope of the density of a mixture of normals, [n] or [1], else None."""
    if not isinstance(distribution, Normal):
        return None
    scale = distinct_rows(distribution.scale)
    return (STEEPEST / scale.square()).mean(0)


def tail_quantile(distribution: Distribution, log_p: Tensor, upper: bool) -> Tensor:
    """Return approximately the x with log P(y <= x) = log_p, or log P(y > x) = log_p if ``upper``.

    The caller may refine the last digits so that they agree with ``log_tail``.

    Args:
        distribution: Of batch [draw, n].
        log_p: [n], log probabilities, which may be far below 0.
        upper: Whether the probability is that of the upper tail.

    Returns:
        [n].
    """
    return each_block(lambda part, each: _tail_quantile(part, each, upper), distribution, log_p)


def _tail_quantile(distribution: Distribution, log_p: Tensor, upper: bool) -> Tensor:
    sign = -1.0 if upper else 1.0
    guess = sign * _normal_tail(log_p)
    if isinstance(distribution, Normal) and distribution.batch_shape[0] == 1:
        return distribution.loc[0] + guess * distribution.scale[0]
    centre, spread = _middle_and_extent(distribution)
    eps = torch.finfo(centre.dtype).eps

    def newton(part: Distribution, x: Tensor, rows: Tensor, log_p: Tensor) -> Newton:
        tail = log_tail(part, x, upper)
        excess = sign * (tail - log_p)
        move = excess * torch.exp(tail - log_density(part, x))
        return Newton(excess, move, ROUGH * eps * x.abs())

    start = centre + guess * spread
    return _within(distribution, root(distribution, newton, start, log_p, centre, spread, ROUGH))


def _normal_tail(log_p: Tensor) -> Tensor:
    """Return z with log P(Z <= z) = log_p for a standard normal Z, for any log_p."""
    return torch.as_tensor(special.ndtri_exp(log_p.double().cpu().numpy())).to(log_p)


def _within(distribution: Distribution, x: Tensor) -> Tensor:
    """Return x, or the end of the support where rounding has put x outside."""
    lower = getattr(distribution.support, "lower_bound", None)
    if lower is None:
        return x
    lowest = torch.as_tensor(lower).to(x)
    if lowest.ndim == 2:
        lowest = lowest.amin(0)
    return torch.maximum(x, lowest + torch.finfo(x.dtype).tiny)


def _count_quantile(distribution: Distribution, p: Tensor, start: Tensor) -> Tensor:
    if univariate.has_only_mass(distribution):
        return _quantile_by_sum(
            distribution, p.expand(torch.broadcast_shapes(p.shape, start.shape))
        )
    low, high = torch.full_like(start, -1.0), start.ceil().clamp_min(1.0)
    while bool((short := cdf(distribution, high) < p).any()):
        low, high = torch.where(short, high, low), torch.where(short, high * 2 + 1, high)
    while bool((high - low > 1).any()):
        middle = torch.floor((low + high) / 2)
        enough = cdf(distribution, middle) >= p
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high


def _quantile_by_sum(distribution: Distribution, p: Tensor) -> Tensor:
    """Return how many counts have a cdf below p, which is the quantile.

    The mass function is summed once, a block of counts at a time.
    """
    n = p.shape[-1]
    most = max(1, BUDGET // (distribution.batch_shape[0] * n))
    first = 0
    size = min(16, most)
    quantiles = torch.zeros_like(p)
    total = torch.zeros(n, dtype=p.dtype, device=p.device)
    while True:
        univariate.check_reach(first)
        k = torch.arange(first, first + size, dtype=p.dtype, device=p.device)
        upto = density(distribution, k[:, None].expand(size, n)).cumsum(0)
        reached = total + upto.reshape(size, *(1,) * (p.ndim - 1), n)
        quantiles = quantiles + (reached < p).sum(0).to(quantiles)
        # rounding may keep the sum below a p next to 1
        stuck = (reached[-1] == total) & (total > 0.5)
        if bool(((reached[-1] >= p) | stuck).all()):
            return quantiles
        total = reached[-1]
        first = first + size
        size = min(2 * size, most)


def crps(distribution: Distribution, y: Tensor) -> Tensor:
    """Return the continuous ranked probability score of the mixture, [n], in the units of y.

    Smaller is better. Gneiting & Raftery (2007), equation 21. Mixtures of normals have a form that
    is exact to rounding: E|X - y| is closed, and E|X - X'| / 2 is that of ``normal_differences``,
    or where scales are very different and the normals at most 256, a sum over pairs of components
    (Grimit et al. 2006). For other continuous distributions, the integral of (F(x) - 1[x >= y])^2
    is computed by Gauss-Legendre quadrature between quantiles of the mixture, and for counts the
    sum over k.
    """
    if isinstance(distribution, RowsOnDemand):
        return each_block(crps, distribution, y)
    if is_discrete(distribution):
        return _count_crps(distribution, y)
    if not isinstance(distribution, Normal):
        return _crps(distribution, y, False)
    if torch.is_grad_enabled() and _has_gradient(distribution):
        return _crps(distribution, y, distribution.batch_shape[0] <= CLOSED_FORM_DRAWS)
    return each_block(_normal_crps, distribution, y)


def _has_gradient(distribution: Distribution) -> bool:
    return any(v.requires_grad for v in univariate.parameters(distribution).values())


def _crps(distribution: Distribution, y: Tensor, pairs: bool) -> Tensor:
    """Return the CRPS by the closed form over pairs of normals, or by quadrature."""
    draws, n = distribution.batch_shape
    if pairs:
        rows, score = max(1, BUDGET // draws**2), _normal_pairs
    else:
        rows, score = max(1, BUDGET // (draws * NODES * (len(PANELS) + 2))), integral
    parts = []
    for i in range(0, n, rows):
        block = slice(i, i + rows)
        parts.append(score(take(distribution, block), y[block]))
    return torch.cat(parts)


def _normal_crps(distribution: Any, y: Tensor) -> Tensor:
    """Return the CRPS of mixtures of normals: E|X - y| less half of E|X - X'|."""
    draws = distribution.batch_shape[0]
    points = normal_differences.points(distribution)
    # operations of either form for each row, in units of one of a density
    few = points * (2 * draws + points) < 30.0 * draws**2
    few &= points <= normal_differences.POINTS
    apart = torch.nonzero(few).flatten()
    score = torch.empty_like(distribution.loc[0])
    if len(apart) < len(y):
        others = torch.nonzero(~few).flatten()
        pairs = draws <= CLOSED_FORM_DRAWS
        score[others] = _crps(take(distribution, others), y[others], pairs)
    if len(apart):
        some: Any = distribution
        if len(apart) < len(y):
            some, y, points = take(distribution, apart), y[apart], points[apart]
        variance = distinct_rows(some.scale).square()
        distance = _absolute_moment(y - some.loc, variance).mean(0)
        half = normal_differences.half_mean_difference(some, points)
        score[apart] = (distance - half).to(score)
    return score


def _absolute_moment(mean: Tensor, variance: Tensor) -> Tensor:
    """Return E|Z| for Z ~ N(mean, variance)."""
    sd = variance.sqrt().clamp_min(torch.finfo(mean.dtype).tiny)
    z = mean / sd
    return 2 * sd * pdf(z) + mean * torch.erf(z / ROOT_2)


def _normal_pairs(distribution: Any, y: Tensor) -> Tensor:
    """Return the CRPS of mixtures of normals by its closed form over pairs of components."""
    m, v = distribution.loc, distribution.scale.square()
    accuracy = _absolute_moment(y - m, v).mean(0)
    spread = _absolute_moment(m[:, None] - m[None, :], v[:, None] + v[None, :]).mean((0, 1))
    return accuracy - 0.5 * spread


@lru_cache(maxsize=1)
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(NODES)


def integral(distribution: Distribution, y: Tensor) -> Tensor:
    """Return the CRPS as an integral, for any distribution with a cdf.

    y is the end of a panel, so that no panel contains the jump of the integrand.
    """
    x, weights, above = _panels(distribution, y)
    F = cdf(distribution, x.reshape(-1, x.shape[-1])).reshape(x.shape)
    return ((F - above).square() * weights).sum((0, 1))


def crps_nodes(distribution: Distribution, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nodes of ``integral``, their weights, and 1[node >= y], [node, n] each."""
    x, weights, above = _panels(distribution, y)
    n = x.shape[-1]
    return x.reshape(-1, n), weights.reshape(-1, n), above.expand(x.shape).reshape(-1, n)


def _panels(distribution: Distribution, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return nodes and weights [NODES, panel, n], and whether each panel is above y."""
    edges = torch.stack([quantile(distribution, p) for p in PANELS] + [y]).sort(0).values
    nodes, weights = (torch.as_tensor(a).to(y) for a in _legendre())
    half = 0.5 * (edges[1:] - edges[:-1])
    centre = 0.5 * (edges[1:] + edges[:-1])
    x = centre + half * nodes[:, None, None]
    return x, weights[:, None, None] * half, (centre >= y).to(y)


def _count_crps(distribution: Distribution, y: Tensor) -> Tensor:
    """Return the CRPS of a distribution of counts as a sum over k.

    Each row is summed between two of its quantiles. Beyond them the integrand is 1 up to y, and 0
    on the other side.
    """
    low, high = quantile(distribution, REST), quantile(distribution, 1 - REST)
    only_mass = univariate.has_only_mass(distribution)
    if only_mass:  # the cdf is then a sum from 0
        low = torch.zeros_like(high)
    total = (low - y).clamp_min(0.0) + (y - high - 1).clamp_min(0.0)
    rows = torch.arange(len(total), device=y.device)
    part, before = distribution, torch.zeros_like(total)
    droppable = bool(univariate.parameters(distribution))
    first = 0
    while True:
        left = torch.nonzero(low[rows] + first <= high[rows]).flatten()
        if not len(left):
            return total
        if droppable and len(left) <= WORTH_IT * len(rows):
            part, rows, before = take(part, left), rows[left], before[left]
        k = torch.arange(first, first + COUNTS, dtype=total.dtype, device=y.device)
        k = low[rows] + k[:, None]
        F = before + density(part, k).cumsum(0) if only_mass else cdf(part, k)
        before = F[-1]
        below = (y[rows] - k).clamp(0.0, 1.0)  # the length of the part of [k, k + 1) below y
        terms = below * F.square() + (1 - below) * (1 - F).square()
        total[rows] += torch.where(k <= high[rows], terms, 0.0).sum(0)
        first += COUNTS
