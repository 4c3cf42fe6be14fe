"""Equal mixtures over posterior draws: cdf, quantiles and moments.

Every distribution here has batch [draw, n]; its mixture over draws is the predictive distribution
of n rows.
"""

from __future__ import annotations

import math

import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution, Normal

from ..numerics.shapes import broadcast_shapes
from . import tails, univariate
from .blocks import by_rows, each_block
from .known_in_part import KnownInPart
from .roots import Newton, root
from .rows_on_demand import RowsOnDemand
from .standard_normal import ROOT_2PI, pdf
from .univariate import cdf as component_cdf
from .univariate import distinct_rows, is_discrete
from .univariate import log_prob as component_log_prob

BUDGET = 8_000_000  # numbers in the largest temporary of one chunk (64 MB in float64)
FINE = 4  # accuracy of a quantile, in rounding errors
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


def mean(distribution: Distribution) -> Tensor:
    """Return the mean of the mixture, [n]."""
    if isinstance(distribution, Normal) and distribution.batch_shape[0] == 1:
        return distribution.loc[0]
    return _mean(distribution)


@by_rows
def _mean(distribution: Distribution) -> Tensor:
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


def sd(distribution: Distribution) -> Tensor:
    """Return the standard deviation [n], also where its square overflows or underflows."""
    if isinstance(distribution, Normal) and distribution.batch_shape[0] == 1:
        return distribution.scale[0]
    return _sd(distribution)


@by_rows
def _sd(distribution: Distribution) -> Tensor:
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
    """Return the quantile of the mixture, [..., n].

    Args:
        distribution: Of batch [draw, n].
        p: One probability, or [..., n] or [..., 1] of them.
    """
    return each_block(_quantile, distribution, torch.as_tensor(p, dtype=torch.float64))


def _quantile(distribution: Distribution, p: Tensor) -> Tensor:
    if isinstance(distribution, KnownInPart):
        return distribution.quantile(p)
    centre, spread = _middle_and_extent(distribution)
    ends = torch.finfo(p.dtype)
    p = p.clamp(ends.tiny, 1 - ends.eps / 2)
    above = (1 - p).to(centre)  # a probability next to 1 may round to 1 in float32
    p = p.to(centre).clamp(torch.finfo(centre.dtype).tiny, 1 - torch.finfo(centre.dtype).eps / 2)
    if is_discrete(distribution):
        return _count_quantile(distribution, p, centre + spread)
    from_above = above < torch.finfo(centre.dtype).eps ** (1 / 3)
    if isinstance(distribution, Normal) and distribution.batch_shape[0] == 1:
        ndtri = torch.special.ndtri
        return (
            distribution.loc[0]
            + torch.where(from_above, -ndtri(above), ndtri(p)) * (distribution.scale[0])
        )
    with torch.no_grad():
        found = _root(distribution, p, above, from_above, centre.detach(), spread.detach())
    if not torch.is_grad_enabled() or not has_gradient(distribution):
        return found
    # the derivative of the inverse of a function
    below, height = cdf_and_density(distribution, found)
    slope = height.detach().clamp_min(torch.finfo(height.dtype).tiny)
    return found - (below - below.detach()) / slope


def _root(
    distribution: Distribution,
    p: Tensor,
    above: Tensor,
    from_above: Tensor,
    centre: Tensor,
    spread: Tensor,
) -> Tensor:
    """Return ``_root_of_cdf``, or where ``from_above`` the root of the tail ``above``, 1 - p."""
    if not tails.has_tails(distribution) or not bool(from_above.any()):
        return _root_of_cdf(distribution, p, centre, spread)
    log_above = torch.where(from_above, above, 0.5).log()
    found = _root_of_tail(distribution, log_above, True, centre, spread, FINE)
    if bool(from_above.all()):
        return found
    others = _root_of_cdf(distribution, torch.where(from_above, 0.5, p), centre, spread)
    return torch.where(from_above, found, others)


def has_gradient(distribution: Distribution) -> bool:
    """Whether a parameter of the components requires a gradient."""
    return any(value.requires_grad for value in univariate.parameters(distribution).values())


def _root_of_cdf(distribution: Distribution, p: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """Return where the cdf of a continuous mixture is p, from a place and a unit of length [n]."""
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
            each = steepest if len(steepest) == 1 else steepest[rows]
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
    if isinstance(distribution, Normal) and distribution.batch_shape[0] == 1:
        z = _normal_tail(log_p)
        return distribution.loc[0] + (-z if upper else z) * distribution.scale[0]
    return _root_of_tail(distribution, log_p, upper, *_middle_and_extent(distribution), ROUGH)


def _root_of_tail(
    distribution: Distribution,
    log_p: Tensor,
    upper: bool,
    centre: Tensor,
    spread: Tensor,
    roundings: int,
) -> Tensor:
    """Return ``_tail_quantile`` of a mixture, from a place and a unit of length [n].

    It is accurate to ``roundings`` rounding errors.
    """
    sign = -1.0 if upper else 1.0
    eps = torch.finfo(centre.dtype).eps

    def newton(part: Distribution, x: Tensor, rows: Tensor, log_p: Tensor) -> Newton:
        tail = log_tail(part, x, upper)
        excess = sign * (tail - log_p)
        move = excess * torch.exp(tail - log_density(part, x))
        # far from the root a difference of large logarithms may leave a short step by rounding
        reach = torch.where(excess.abs() > 1, 0.0, roundings * eps * x.abs())
        return Newton(excess, move, reach)

    start = centre + sign * _normal_tail(log_p) * spread
    found = root(distribution, newton, start, log_p, centre, spread, roundings)
    return _within(distribution, found)


def _normal_tail(log_p: Tensor) -> Tensor:
    """Return z with log P(Z <= z) = log_p for a standard normal Z, for any log_p."""
    return torch.as_tensor(special.ndtri_exp(log_p.double().cpu().numpy())).to(log_p)


def _within(distribution: Distribution, x: Tensor) -> Tensor:
    """Return x, or the end of the support where rounding has put x outside."""
    lower = _end(distribution, "lower_bound", x)
    upper = _end(distribution, "upper_bound", x)
    if lower is not None:
        x = torch.maximum(x, lower.amin(0) + torch.finfo(x.dtype).tiny)
    if upper is not None:
        x = torch.minimum(x, upper.amax(0))
    return x


def _end(distribution: Distribution, name: str, like: Tensor) -> Tensor | None:
    """Return an end of the support of each component, [draw, n] or [1]; None if there is none."""
    end = getattr(distribution.support, name, None)
    if end is None:
        return None
    end = torch.as_tensor(end).to(like)
    return end if end.ndim == 2 else end.reshape(1)


def _count_quantile(distribution: Distribution, p: Tensor, start: Tensor) -> Tensor:
    shape = broadcast_shapes(p.shape, start.shape)
    p, start = p.expand(shape), start.expand(shape)
    if univariate.has_only_mass(distribution):
        return _quantile_by_sum(distribution, p)
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
    columns = max(distribution.batch_shape[0] * n, p.numel())
    most = max(1, BUDGET // columns)
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
