"""Sets where the predictive density is highest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import elementwise
from torch import Tensor
from torch.distributions import Normal

from ...distributions.mixture_nodes import landmarks
from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score, end_of_set, interval, last_inside

GOLDEN = 0.5 * (math.sqrt(5) - 1)
NARROWINGS = 45  # golden sections around a mode or a dip: its depth is then exact to the last digit
STEPS = 20  # of the root finder towards an end, before the search among floating-point numbers
BUDGET = 8_000_000  # numbers in the largest temporary


@dataclass(frozen=True)
class Density(Score):
    """The score -log p(y): sets where the predictive density is at least exp(-q).

    A set is a union of intervals where the density has several modes. This is the split form of
    highest-predictive-density sets; Izbicki, Shimizu & Stern (2022). One Normal per row has a
    closed form. For a mixture, points are placed around the mode of every component at its own
    scale; modes and dips are searched between them, and then the ends, each the last floating-point
    number whose score is at most q. The scores [n] are in nats, of a density per unit of y: another
    unit adds one constant to all of them, and the sets are the same.

    Raises:
        NotApplicable: By ``calibrate`` and by its calibrator, if y is a count or a class; by the
            calibrator, if the predictions have no density (points or quantiles alone).

    Examples:
        Predictions with modes at -3 and 3, and values of y up to 1 away from a mode:

        >>> import ppgp
        >>> import pyro.distributions as dist
        >>> import torch
        >>> from ppgp import conformal
        >>> modes = torch.tensor([[-3.0], [3.0]])  # two draws
        >>> calibration = ppgp.Prediction(dist.Normal(modes.expand(2, 9), 0.5))
        >>> y = [-4.0, -3.7, -3.4, -3.1, 2.5, 2.8, 3.1, 3.4, 3.9]
        >>> calibrator = ppgp.calibrate(conformal.Density(), calibration, y)
        >>> region = calibrator(ppgp.Prediction(dist.Normal(modes, 0.5)), level=0.9)
        >>> [(round(low, 2), round(high, 2)) for low, high in region.pieces[0]]
        [(-4.0, -2.0), (2.0, 4.0)]
    """

    kinds = ("continuous",)
    roundings = 64
    of_level = False

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return -prediction.by_row.log_prob(y)

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        predictive = prediction.by_row
        q = q.expand(len(predictive))
        if isinstance(predictive.distribution, Normal) and predictive.draws == 1:
            return _one_normal(predictive, q, level)
        return _union(predictive, q, level)


def _one_normal(predictive: Prediction, q: Tensor, level: float) -> Region:
    """Return the sets where each row has one Normal distribution: intervals around its mean."""
    peak = predictive.mean
    height = predictive.log_prob(peak)
    q = torch.where(-height > q, torch.full_like(q, -torch.inf), q)
    q = torch.where(torch.isnan(height), torch.full_like(q, torch.nan), q)
    squared = (2 * (q.to(height) + height)).clamp_min(0.0).nan_to_num(posinf=1.0)
    half = predictive.std * squared.sqrt()
    ends = []
    for outward in (-1, 1):

        def holds(y: Tensor, rows: Tensor | slice, outward: int = outward) -> Tensor:
            part = predictive if isinstance(rows, slice) else predictive[rows]
            inner = outward * y <= outward * peak[rows]
            return inner | (-part.log_prob(y) <= q[rows])

        ends.append(end_of_set(holds, peak + outward * half, q, outward))
    return interval(ends[0], ends[1], level)


def _union(predictive: Prediction, q: Tensor, level: float) -> Region:
    """Return the sets of mixtures: unions of intervals."""
    density = _MixtureDensity(predictive, q)
    rows, x = landmarks(predictive.distribution)
    most = torch.finfo(x.dtype).max
    offset, scale = predictive.units_of(rows)
    in_units = offset + scale * x
    y = torch.where(x.abs() == most, x, in_units).clamp(-most, most)
    rows, y, f = _with_extremes(density, rows, y, density.log_density(rows, y))
    high = density.inside(rows, f)
    crossing = torch.nonzero((rows[1:] == rows[:-1]) & (high[1:] != high[:-1])).flatten()
    entering = high[crossing + 1]
    inner = torch.where(entering, y[crossing + 1], y[crossing])
    outer = torch.where(entering, y[crossing], y[crossing + 1])
    ends = inner.clone()
    for outward, which in ((-1, entering), (1, ~entering)):
        here = torch.nonzero(which).flatten()
        if len(here):
            at = rows[crossing[here]]
            ends[here] = _crossed(density, at, inner[here], outer[here], outward)
    first = torch.searchsorted(rows, torch.arange(len(q), device=rows.device))
    pieces = _pieces(q, high[first], rows[crossing], ends, ~entering)
    return _region(pieces, torch.isnan(q) | torch.isnan(predictive.centre), ends, level)


def _pieces(
    q: Tensor, open_below: Tensor, rows: Tensor, ends: Tensor, leaving: Tensor
) -> list[list[tuple[float, float]]]:
    """Return the intervals of each row from the ends where its set is entered or left."""
    inf = math.inf
    pieces: list[list[tuple[float, float]]] = [[] for _ in range(len(q))]
    starts = dict.fromkeys(torch.nonzero(open_below).flatten().tolist(), -inf)
    for row, end, leaves in sorted(
        zip(rows.tolist(), ends.tolist(), leaving.tolist(), strict=True)
    ):
        if not leaves:
            starts[row] = end
        elif row in starts:
            pieces[row].append((starts.pop(row), end))
    for row, start in starts.items():
        pieces[row].append((start, inf))
    for row in torch.nonzero(torch.isposinf(q)).flatten().tolist():
        pieces[row] = [(-inf, inf)]
    return pieces


def _region(
    pieces: list[list[tuple[float, float]]], unknown: Tensor, like: Tensor, level: float
) -> Region:
    """Return the sets as a Region, NaN where ``unknown`` [n]."""
    first = [min((begin for begin, _ in row), default=math.inf) for row in pieces]
    last = [max((end for _, end in row), default=-math.inf) for row in pieces]
    lower, upper = like.new_tensor(first), like.new_tensor(last)
    region = Region(level, "", torch.where(unknown, torch.nan, lower), upper)
    if any(len(row) > 1 for row in pieces):
        region = replace(region, pieces=tuple(map(tuple, pieces)))
    return region


class _MixtureDensity:
    """The predictive density of mixtures, at pairs of a row and a value of y."""

    def __init__(self, predictive: Prediction, q: Tensor) -> None:
        self.predictive, self.q = predictive, q
        self.size = max(1, BUDGET // predictive.draws)

    def log_density(self, rows: Tensor, y: Tensor) -> Tensor:
        if not len(y):
            return y
        parts = zip(rows.split(self.size), y.split(self.size), strict=True)
        value = torch.cat([self.predictive[r].log_prob(v) for r, v in parts])
        return value.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)

    def inside(self, rows: Tensor, log_density: Tensor) -> Tensor:
        return -log_density <= self.q[rows]


def _with_extremes(
    density: _MixtureDensity, rows: Tensor, y: Tensor, f: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the points, with further ones where the density may cross the threshold between them.

    These are the modes that rise above the threshold and the dips that fall below it.
    """
    same = rows[1:] == rows[:-1]
    middle = torch.nonzero(same[1:] & same[:-1]).flatten() + 1
    q = density.q[rows[middle]].to(f)
    left, here, right = f[middle - 1], f[middle], f[middle + 1]
    # a concave function rises by less than this between neighbouring points
    reach = 4 * torch.maximum((here - left).abs(), (here - right).abs())
    reach = torch.where(torch.isnan(reach), torch.full_like(reach, torch.inf), reach)
    peak = (here >= left) & (here >= right) & (-here > q) & (here + reach >= -q)
    dip = (here <= left) & (here <= right) & (-here <= q) & (here - reach < -q)
    most = torch.finfo(y.dtype).max
    wanted = (peak | dip) & torch.isfinite(here) & (y[middle - 1] > -most) & (y[middle + 1] < most)
    chosen = middle[wanted]
    if not len(chosen):
        return rows, y, f
    sign = torch.where(peak[wanted], 1.0, -1.0).to(f)
    more = rows[chosen]
    more_y = _highest(density, more, y[chosen - 1], y[chosen + 1], sign)
    all_rows, all_y = torch.cat([rows, more]), torch.cat([y, more_y])
    all_f = torch.cat([f, density.log_density(more, more_y)])
    order = all_y.argsort(stable=True)
    order = order[all_rows[order].argsort(stable=True)]
    return all_rows[order], all_y[order], all_f[order]


def _highest(density: _MixtureDensity, rows: Tensor, a: Tensor, b: Tensor, sign: Tensor) -> Tensor:
    """Return where sign * log density is highest between a and b, by golden sections."""
    c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    at_c, at_d = (sign * density.log_density(rows, v) for v in (c, d))
    for _ in range(NARROWINGS):
        left = at_c > at_d
        a, b = torch.where(left, a, c), torch.where(left, d, b)
        new = torch.where(left, b - GOLDEN * (b - a), a + GOLDEN * (b - a))
        at_new = sign * density.log_density(rows, new)
        c, d = torch.where(left, new, d), torch.where(left, c, new)
        at_c, at_d = torch.where(left, at_new, at_d), torch.where(left, at_c, at_new)
    return torch.where(at_c > at_d, c, d)


def _crossed(
    density: _MixtureDensity, rows: Tensor, inner: Tensor, outer: Tensor, outward: int
) -> Tensor:
    """Return the last number in the set, from ``inner`` (in it) towards ``outer`` (not in it)."""
    finite = torch.finfo(inner.dtype)

    def excess(y: np.ndarray, which: np.ndarray) -> np.ndarray:
        here = rows[torch.as_tensor(which, device=rows.device)]
        value = density.log_density(here, torch.as_tensor(y).to(inner))
        above = (value + density.q[here].to(inner)).clamp(-finite.max / 4, finite.max / 4)
        # a number on the threshold belongs to the set, and the search goes on beyond it
        on_its_side = torch.where(density.inside(here, value), finite.tiny, -torch.inf)
        return torch.maximum(above, on_its_side.to(above)).cpu().numpy()

    ends = [end.cpu().numpy() for end in (inner, outer)]
    with np.errstate(all="ignore"):  # the bracket may be as wide as the range of floats
        found = elementwise.find_root(
            excess,
            (np.minimum(*ends), np.maximum(*ends)),
            args=(np.arange(len(rows)),),
            tolerances={"fatol": 0.0},
            maxiter=STEPS,
        )
    guess = torch.as_tensor(found.x).to(inner)
    guess = torch.where(torch.isfinite(guess), guess, inner)

    def holds(v: Tensor, some: Tensor | slice) -> Tensor:
        within = outward * v < outward * outer[some]
        reached = outward * v <= outward * inner[some]
        return reached | (within & density.inside(rows[some], density.log_density(rows[some], v)))

    return last_inside(holds, guess, outward)
