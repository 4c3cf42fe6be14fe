"""The continuous ranked probability score of equal mixtures over posterior draws, of any family."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.polynomial import legendre
from scipy import special
from torch import Tensor
from torch.distributions import Distribution, Normal, StudentT

from . import univariate
from .blocks import each_block
from .gamma_functions import log_rising
from .mixture import BUDGET, ROOT_2, cdf, density, has_gradient, quantile
from .roots import WORTH_IT
from .rows_on_demand import RowsOnDemand
from .standard_normal import pdf
from .univariate import distinct_rows, is_discrete, take

CLOSED_FORM_DRAWS = 256  # up to this number, the CRPS over pairs of draws is cheaper
#: up to this number, pairs of draws that are narrow beside their range are summed, for exactness
PAIRS_OF_NARROW = 2048
PANELS = (1e-8, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-4, 1 - 1e-8)
NODES = 16
REST = 1e-14  # probability beyond the counts that the CRPS is summed over, on either side
CLOSE = 0.005  # to df = 1, where the closed form of Student t loses digits
LOG_GAMMA_HALF = 0.5 * math.log(math.pi)
FEW_COMPONENTS = 16  # of Student t, up to which each has panels of its own
FARTHEST_POWER = 21.0  # of 4, in units of the width of a mixture, from which tails are powers
#: quantiles between which mixtures of more are integrated
PANELS_OF_MANY = (1e-4, 1e-3, 0.01, *(0.05 * i for i in range(1, 20)), 0.99, 0.999, 1 - 1e-4)
COUNTS = 16  # counts of each row whose mass is computed at once
LONG = 128  # counts of a row, from which the sum over all of them takes longer than one by ranges
RANGE_NODES = 25  # values from which a sum over a long range of counts is made
#: Ranges have a power of 2 of numbers; one of up to EXACT is summed term by term.
SHORTEST, EXACT, LONGEST = 16, 64, 2**18
#: The sum of a range is that of the polynomial through all nodes. It is used if that through every
#: second node differs by less, in units of the sum so far. The error of all nodes is about the
#: square of that of every second.
AGREE = 1e-9
#: of E|X - X'| / 2 of a mixture of normals
REACH = 7.0  # sd beyond a component where its density is left out, 1e-12 of its probability
STEP = 0.42  # spacing in units of the least scale: frequencies above it have a weight of 1e-12
SEGMENT = 64  # points between which densities follow from one another
MOST = 100.0  # exponent of the ratio of neighbouring densities, for components far from a segment
BLOCK = 125_000  # numbers [draw, row] in one block
POINTS = 2048  # of a row at most: the weights of one point in the cdf at another take 32 MB
UNEVEN = 1.25  # ratio of the numbers of points from which rows are grouped by it


def crps(distribution: Distribution, y: Tensor) -> Tensor:
    """Return the continuous ranked probability score of the mixture, [n], in the units of y.

    Smaller is better. Gneiting & Raftery (2007), equation 21. Mixtures of normals have a form that
    is exact to rounding: E|X - y| is closed, and E|X - X'| / 2 is that of ``half_mean_difference``,
    or where scales are very different and the normals at most 2,048, a sum over pairs of components
    (Grimit et al. 2006). For other continuous distributions, and for more such normals, the
    integral of (F(x) - 1[x >= y])^2 is computed by Gauss-Legendre quadrature between quantiles of
    the mixture. Its relative error is up to 0.01 where components are a thousand times as narrow as
    the mixture. For counts it is the sum over k.
    """
    if isinstance(distribution, RowsOnDemand):
        return each_block(crps, distribution, y)
    if is_discrete(distribution):
        return _count_crps(distribution, y)
    if isinstance(distribution, StudentT) and not (
        torch.is_grad_enabled() and has_gradient(distribution)
    ):
        return each_block(_student_crps, distribution, y)
    if not isinstance(distribution, Normal):
        return _crps(distribution, y, False)
    if torch.is_grad_enabled() and has_gradient(distribution):
        return _crps(distribution, y, distribution.batch_shape[0] <= CLOSED_FORM_DRAWS)
    return each_block(_normal_crps, distribution, y)


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
    points = points_needed(distribution)
    # operations of either form for each row, in units of one of a density
    few = points * (2 * draws + points) < 30.0 * draws**2
    few &= points <= POINTS
    apart = torch.nonzero(few).flatten()
    score = torch.empty_like(distribution.loc[0])
    if len(apart) < len(y):
        others = torch.nonzero(~few).flatten()
        pairs = draws <= PAIRS_OF_NARROW
        score[others] = _crps(take(distribution, others), y[others], pairs)
    if len(apart):
        some: Any = distribution
        if len(apart) < len(y):
            some, y, points = take(distribution, apart), y[apart], points[apart]
        variance = distinct_rows(some.scale).square()
        distance = _absolute_moment(y - some.loc, variance).mean(0)
        half = half_mean_difference(some, points)
        score[apart] = (distance - half).to(score)
    return score


def _student_crps(distribution: Any, y: Tensor) -> Tensor:
    """Return the CRPS of mixtures of Student t; infinite where a df is at most 1/2.

    One component has a closed form (Jordan, Krueger & Lerch 2019). Several are integrated between
    points at distances of 4^k scales from each component, or quantiles of the mixture if the
    components are many, and beyond all of them as powers of the distance.
    """
    df, loc, scale = (
        distinct_rows(p).expand(distribution.batch_shape).double()
        for p in (distribution.df, distribution.loc, distribution.scale)
    )
    at = y.double()
    if len(df) == 1:
        score = scale[0] * _unit_student_crps(df[0], (at - loc[0]) / scale[0])
    else:
        score = _student_mixture_crps(df, loc, scale, at)
    score = torch.where((df <= 0.5).any(0), torch.inf, score)
    return torch.where(y.isinf(), torch.inf, score).to(y)


def _unit_student_crps(df: Tensor, z: Tensor) -> Tensor:
    """Return the CRPS of Student's t of scale 1 at z.

    The form has a removable singularity at df = 1, next to which it is interpolated.
    """
    near = (df - 1).abs() < CLOSE
    score = _closed_student_crps(torch.where(near, 2.0, df), z)
    if not bool(near.any()):
        return score
    nodes = 1 + CLOSE * torch.tensor([-10.0, -8, -6, -4, -2, 2, 4, 6, 8, 10]).to(df)
    between = torch.zeros_like(z)
    for i, node in enumerate(nodes):
        others = torch.cat([nodes[:i], nodes[i + 1 :]])
        share = ((df[..., None] - others) / (node - others)).prod(-1)
        between = between + share * _closed_student_crps(node.expand(z.shape), z)
    return torch.where(near, between, score)


def _closed_student_crps(df: Tensor, z: Tensor) -> Tensor:
    """Return the CRPS of Student's t by its closed form, which has no value at df = 1."""
    half = torch.full_like(df, 0.5)

    def log_step(t: Tensor) -> Tensor:
        """Return log(Gamma(t + 1/2) / Gamma(t)), without the difference of two large numbers."""
        return log_rising(t, half) + 0.5 * t.log()

    log_beta = LOG_GAMMA_HALF - log_step(0.5 * df)
    ratio = LOG_GAMMA_HALF - log_step(df - 0.5) - 2 * log_beta
    density = torch.exp(-log_beta - 0.5 * df.log() - 0.5 * (df + 1) * torch.log1p(z * z / df))
    spread = density * (df + z * z) - df.sqrt() * ratio.exp()
    return z * (2 * _student_cdf(df, z) - 1) + 2 * spread / (df - 1)


def _student_cdf(df: Tensor, z: Tensor) -> Tensor:
    df, z = torch.broadcast_tensors(df, z)
    return torch.as_tensor(special.stdtr(df.cpu().numpy(), z.cpu().numpy())).to(z)


def _student_mixture_crps(df: Tensor, loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
    """Return the CRPS [n] of mixtures of Student t, parameters [draw, n]."""
    k = torch.arange(-1.0, FARTHEST_POWER).to(y)
    steps = torch.cat([k.new_zeros(1), 4.0**k])
    steps = torch.cat([-steps.flip(0), steps])
    middle = loc.median(0).values
    reach = (loc - middle).abs().max(0).values + (y - middle).abs() + scale.max(0).values
    outer = middle + reach * torch.cat([-(4.0 ** k[1:]).flip(0), 4.0 ** k[1:]])[:, None]
    if len(df) <= FEW_COMPONENTS:
        inner = (loc + scale * steps[:, None, None]).flatten(0, 1)
    else:
        law = StudentT(df, loc, scale, validate_args=False)
        inner = torch.stack([quantile(law, p) for p in PANELS_OF_MANY])
    inner = torch.minimum(torch.maximum(inner, middle - 4 * reach), middle + 4 * reach)
    edges = torch.cat([outer, inner, y[None]]).sort(0).values
    used = (edges[1:] > edges[:-1]).any(1)
    nodes, weights = (torch.as_tensor(a).to(y)[:, None] for a in _legendre())
    total = torch.zeros_like(y)
    for low, high in zip(edges[:-1][used], edges[1:][used], strict=True):
        half, centre = 0.5 * (high - low), 0.5 * (high + low)
        x = centre + half * nodes
        # the tail that is there, so that no digits of small probabilities are lost
        sign = torch.where(centre >= y, -1.0, 1.0)
        tail = _student_cdf(df[:, None], sign * (x - loc[:, None]) / scale[:, None]).mean(0)
        total = total + half * (weights * tail.square()).sum(0)
    end = edges[-1] - middle
    for sign in (-1.0, 1.0):
        rest = _student_cdf(df, (-end - sign * (loc - middle)) / scale) / len(df)
        for share, power in zip(rest, df, strict=True):
            total = total + end * (share * rest / (power + df - 1)).sum(0)
    return total


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
    score = ((F - above).square() * weights).sum((0, 1))
    return torch.where(y.isinf(), torch.inf, score)


def crps_nodes(distribution: Distribution, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nodes of ``integral``, their weights, and 1[node >= y], [node, n] each."""
    x, weights, above = _panels(distribution, y)
    n = x.shape[-1]
    return x.reshape(-1, n), weights.reshape(-1, n), above.expand(x.shape).reshape(-1, n)


def _panels(distribution: Distribution, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return nodes and weights [NODES, panel, n], and whether each panel is above y."""
    with torch.no_grad():  # the integral does not depend on where its panels end
        ends = [quantile(distribution, p) for p in PANELS]
    edges = torch.stack([*ends, y]).sort(0).values
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
    long = high - low >= LONG
    # without parameters, its rows cannot be taken
    if only_mass or not bool(long.any()) or not univariate.parameters(distribution):
        return _term_by_term(distribution, y, low, high)
    total = torch.zeros_like(y)
    for chosen, score in ((long, _by_ranges), (~long, _term_by_term)):
        rows = torch.nonzero(chosen).flatten()
        if len(rows):
            found = score(take(distribution, rows), y[rows], low[rows], high[rows])
            total = total.index_put((rows,), found)
    return total


def _by_ranges(distribution: Distribution, y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the CRPS as the sum between two counts of each row, from few of its terms."""
    total = _outside(y, low, high)

    def F(k: Tensor, rows: Tensor) -> Tensor:
        return cdf(take(distribution, rows), k)

    at = y.floor()  # a part of [at, at + 1) is below y, and the rest of it above
    total = total + sum_over_counts(
        lambda k, rows: F(k, rows).square(), low, torch.minimum(high, at - 1)
    )
    total = total + sum_over_counts(
        lambda k, rows: (1 - F(k, rows)).square(), torch.maximum(low, at + 1), high
    )
    inside = (low <= at) & (at <= high)
    return total + torch.where(inside, _terms(y, at, cdf(distribution, at)), 0.0)


def _terms(y: Tensor, k: Tensor, F: Tensor) -> Tensor:
    """Return the integral of (F(x) - 1[x >= y])^2 from k to k + 1, given F(k)."""
    below = (y - k).clamp(0.0, 1.0)  # the length of the part below y
    return below * F.square() + (1 - below) * (1 - F).square()


def _outside(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the integral below ``low``, where the cdf is 0, and above ``high``, where it is 1."""
    return (low - y).clamp_min(0.0) + (y - high - 1).clamp_min(0.0)


def _term_by_term(distribution: Distribution, y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the CRPS as the sum of all terms between two counts of each row.

    The cdf is that before the first count and the sum of the mass from there.
    """
    total = _outside(y, low, high)
    before = torch.zeros_like(total)
    if not univariate.has_only_mass(distribution):
        before = cdf(distribution, low - 1)
    rows = torch.arange(len(total), device=y.device)
    part = distribution
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
        F = before + density(part, k).cumsum(0)
        before = F[-1]
        terms = torch.where(k <= high[rows], _terms(y[rows], k, F), 0.0)
        total = total.index_add(0, rows, terms.sum(0))
        first += COUNTS


@dataclass(frozen=True)
class Rule:
    """The sum of f(0) to f(length - 1) is about ``weights`` @ f(``nodes``), [node] each.

    ``coarse`` are the weights of the rule with every second node, zero at the others.
    """

    nodes: np.ndarray
    weights: np.ndarray
    coarse: np.ndarray


@lru_cache(maxsize=32)
def rule(length: int) -> Rule:
    """Return the rule that is exact for polynomials of a degree below the number of its nodes."""
    if length <= EXACT:
        every = np.arange(length)
        return Rule(every, np.ones(length), np.ones(length))
    share = 0.5 - 0.5 * np.cos(np.pi * np.arange(RANGE_NODES) / (RANGE_NODES - 1))
    nodes = np.round(share * (length - 1)).astype(int)
    # close to the ends, the nodes round to the same numbers
    for i in range(1, RANGE_NODES // 2 + 1):
        nodes[i] = max(nodes[i], nodes[i - 1] + 1)
        nodes[-1 - i] = min(nodes[-1 - i], nodes[-i] - 1)
    moments = _moments(length)
    weights = np.linalg.solve(_polynomials(nodes, length, RANGE_NODES).T, moments)
    half = len(nodes[::2])
    coarse = np.zeros(RANGE_NODES)
    coarse[::2] = np.linalg.solve(_polynomials(nodes[::2], length, half).T, moments[:half])
    return Rule(nodes, weights, coarse)


def _polynomials(k: np.ndarray, length: int, count: int) -> np.ndarray:
    """Return the Legendre polynomials [k, degree] of the range at numbers k."""
    return legendre.legvander(2 * k / (length - 1) - 1, count - 1)


def _moments(length: int) -> np.ndarray:
    """Return the sums [degree] of the Legendre polynomials over the range."""
    step = 2**14
    starts = range(0, length, step)
    parts = [np.arange(start, min(start + step, length)) for start in starts]
    return np.sum([_polynomials(k, length, RANGE_NODES).sum(0) for k in parts], axis=0)


def sum_over_counts(f: Callable[[Tensor, Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Return the sums of a monotone f(k) over the whole numbers k from low to high, [row].

    Ranges grow as long as f is a polynomial over them, to rounding; a function that is not smooth
    is summed term by term. The relative error is about 1e-10, or that of rounding. Between two
    nodes, a monotone function hides neither a peak nor a jump.

    Args:
        f: ``f(k, rows)`` maps numbers k [node, m] and the index of m rows to values [node, m],
            none of them negative; monotone in k.
        low: The first number of each row.
        high: The last; less than ``low``: the sum is 0.
    """
    total = torch.zeros_like(low)
    start = low.clone()
    agree = max(AGREE, 4 * torch.finfo(low.dtype).eps)
    length = torch.full_like(low, SHORTEST, dtype=torch.long)
    while True:
        rows = torch.nonzero(start <= high).flatten()
        if not len(rows):
            return total
        for size in length[rows].unique().tolist():
            some = rows[length[rows] == size]
            part = rule(size)
            nodes, weights, coarse = (
                torch.as_tensor(each).to(low) for each in (part.nodes, part.weights, part.coarse)
            )
            k = start[some] + nodes[:, None]
            values = f(k, some)
            if size <= EXACT:
                sums = torch.where(k <= high[some], values, 0.0).sum(0)
                done = torch.ones_like(some, dtype=torch.bool)
            else:
                sums = weights @ values
                error = (sums - coarse @ values).detach().abs()
                done = error <= agree * (total[some] + sums).detach()
            total = total.index_add(0, some[done], sums[done])
            start[some[done]] += size
            # a range that ends beyond the last number is not tried
            rest = high[some] - start[some] + 1
            longer = torch.where(done, 2 * size, size // 2).clamp(max=LONGEST)
            fits = 2 ** rest.clamp_min(1).log2().floor().long()
            length[some] = torch.minimum(longer, fits).clamp_min(SHORTEST)


def points_needed(distribution: Any) -> Tensor:
    """Return how many points each row of a mixture of normals needs, [n].

    The method is for at most ``POINTS``.
    """
    loc, scale = _from_the_first(distribution)
    reach = REACH * scale
    width = (loc + reach).amax(0) - (loc - reach).amin(0)
    return torch.ceil(width / (STEP * scale.amin(0))) + 1


def half_mean_difference(distribution: Any, points: Tensor) -> Tensor:
    """Return E|X - X'| / 2 of two draws from the mixture of each row, [n], without a gradient.

    Its time is linear in the components. It is the integral of F (1 - F). The closed form over
    pairs of components takes the square of their number. A mixture of normals has nearly no
    frequencies above some multiple of 1 / (least scale), so that its density at equally spaced
    points determines it to rounding: the cdf there is a sum of these with the weights
    1/2 + Si(pi k) / pi, and the integral is the sum over the points (Stenger 1993, "Numerical
    Methods Based on Sinc and Analytic Functions").

    It is computed in double precision whatever the dtype, as the densities follow from one another.

    Args:
        distribution: Normal of batch [draw, n].
        points: [n], the result of ``points_needed``.
    """
    draws, n = distribution.batch_shape
    size = max(1, BLOCK // draws)
    out = torch.empty_like(points)
    even = n <= size or bool(points.max() <= UNEVEN * points.min())
    order = None if even else points.argsort()
    for start in range(0, n, size):
        rows: Any = slice(start, start + size)
        if order is not None:
            rows = order[rows]
        out[rows] = _of_block(take(distribution, rows), int(points[rows].max()))
    return out


@torch.no_grad()
def _of_block(distribution: Any, points: int) -> Tensor:
    loc, scale = _from_the_first(distribution)
    reach = REACH * scale
    low, high = (loc - reach).amin(0), (loc + reach).amax(0)
    step = (high - low) / (points - 1)
    density = torch.cat(
        [
            _densities(loc, scale, low + first * step, step, min(SEGMENT, points - first))
            for first in range(0, points, SEGMENT)
        ]
    )
    below = torch.as_tensor(_weights(points), device=loc.device) @ (density * step)
    return (below * (1 - below)).sum(0) * step


def _densities(loc: Tensor, scale: Tensor, first: Tensor, step: Tensor, number: int) -> Tensor:
    """Return the density at equally spaced points, [number, n], each component from the last."""
    unit = scale * math.sqrt(2)
    away, apart = (loc - first) / unit, step / unit
    height = torch.exp(-away.square()) / (unit * math.sqrt(math.pi))
    ratio = torch.exp((2 * away * apart - apart.square()).clamp_max(MOST))
    fall = torch.exp(-2 * apart.square())
    out = loc.new_empty(number, loc.shape[-1])
    for i in range(number):
        torch.mean(height, 0, out=out[i])
        height *= ratio
        ratio *= fall
    return out


def _from_the_first(distribution: Any) -> tuple[Tensor, Tensor]:
    """Return the locations less that of the first component, and the scales.

    The integral does not change. Far from 0 the points would have rounded places.
    """
    loc, scale = distribution.loc.double(), distinct_rows(distribution.scale).double()
    return loc - loc[0], scale


@lru_cache(maxsize=1)
def _steps() -> np.ndarray:
    """Return the weight of a density in the cdf k points above it, by descending k."""
    apart = np.arange(POINTS - 1, -POINTS, -1)
    return 0.5 + special.sici(math.pi * apart)[0] / math.pi


def _weights(points: int) -> np.ndarray:
    """Return the weights of the densities at all points in the cdf at each, [points, points].

    They depend on the difference of the two places alone.
    """
    rows = np.lib.stride_tricks.sliding_window_view(_steps(), points)
    return np.ascontiguousarray(rows[POINTS - points : POINTS][::-1])
