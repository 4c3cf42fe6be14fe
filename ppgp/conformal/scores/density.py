"""Where the predictive density is highest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Normal

from ...numerics.float_search import between, last_inside, number, place
from ...numerics.mixture_nodes import landmarks
from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score, ended, interval

GOLDEN = 0.5 * (math.sqrt(5) - 1)
NARROWINGS = (
    45  # of the stretch that holds a mode or a dip: its depth is then known to the last digit
)
SECANTS = 12
BUDGET = 8_000_000  # numbers in the largest temporary


@dataclass(frozen=True)
class Density(Score):
    """-log p(y): the set where the predictive density is at least exp(-q), a union of intervals where that has several modes.

    The split form of highest-predictive-density sets; Izbicki, Shimizu & Stern (2022). One Normal per row: closed form. A
    mixture: between points placed around the mode of every component at its own scale, modes and dips are found, and then
    the ends, each the last floating-point number whose score is at most q.
    """

    kinds = ("continuous",)
    roundings = 64

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return -prediction.by_row.log_prob(y)

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        law = prediction.by_row
        q = q.expand(len(law))
        if isinstance(law.distribution, Normal) and law.draws == 1:
            return _one_normal(law, q, level)
        return _union(law, q, level)


def _one_normal(law: Prediction, q: Tensor, level: float) -> Region:
    peak = law.mean
    height = law.log_prob(peak)
    q = torch.where(-height > q, torch.full_like(q, -torch.inf), q)
    q = torch.where(torch.isnan(height), torch.full_like(q, torch.nan), q)
    half = law.std * (2 * (q.to(height) + height)).clamp_min(0.0).nan_to_num(posinf=1.0).sqrt()
    ends = []
    for outward in (-1, 1):

        def holds(y: Tensor, rows: Tensor | slice, outward: int = outward) -> Tensor:
            part = law if isinstance(rows, slice) else law[rows]
            inner = outward * y <= outward * peak[rows]
            return inner | (-part.log_prob(y) <= q[rows])

        ends.append(ended(holds, peak + outward * half, q, outward))
    return interval(ends[0], ends[1], level)


class _Line:
    """The density of a mixture along the line of each row, at pairs of a row and a point."""

    def __init__(self, law: Prediction, q: Tensor) -> None:
        self.law, self.q = law, q
        self.size = max(1, BUDGET // law.draws)

    def log_density(self, rows: Tensor, y: Tensor) -> Tensor:
        if not len(y):
            return y
        parts = zip(rows.split(self.size), y.split(self.size), strict=True)
        value = torch.cat([self.law[r].log_prob(v) for r, v in parts])
        return value.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)

    def inside(self, rows: Tensor, log_density: Tensor) -> Tensor:
        return -log_density <= self.q[rows]


def _union(law: Prediction, q: Tensor, level: float) -> Region:
    line = _Line(law, q)
    rows, x = landmarks(law.distribution)
    most = torch.finfo(x.dtype).max
    y = torch.where(x.abs() == most, x, law.offset + law.scale * x).clamp(-most, most)
    f = line.log_density(rows, y)
    rows, y, f = _with_extremes(line, rows, y, f)
    high = line.inside(rows, f)
    crossing = torch.nonzero((rows[1:] == rows[:-1]) & (high[1:] != high[:-1])).flatten()
    entering = high[crossing + 1]
    inner = torch.where(entering, y[crossing + 1], y[crossing])
    outer = torch.where(entering, y[crossing], y[crossing + 1])
    ends = inner.clone()
    for outward, which in ((-1, entering), (1, ~entering)):
        here = torch.nonzero(which).flatten()
        if len(here):
            ends[here] = _crossed(line, rows[crossing[here]], inner[here], outer[here], outward)
    unknown = torch.isnan(law.centre)
    return _region(q, unknown, rows, y, high, rows[crossing], entering, ends, level)


def _with_extremes(
    line: _Line, rows: Tensor, y: Tensor, f: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The points, and with them the modes that rise above the threshold, and the dips that fall below it, between two of them."""
    same = rows[1:] == rows[:-1]
    middle = torch.nonzero(same[1:] & same[:-1]).flatten() + 1
    q = line.q[rows[middle]].to(f)
    left, here, right = f[middle - 1], f[middle], f[middle + 1]
    reach = 4 * torch.maximum(
        (here - left).abs(), (here - right).abs()
    )  # a concave function rises by less between them
    reach = torch.where(torch.isnan(reach), torch.full_like(reach, torch.inf), reach)
    peak = (here >= left) & (here >= right) & (-here > q) & (here + reach >= -q)
    dip = (here <= left) & (here <= right) & (-here <= q) & (here - reach < -q)
    most = torch.finfo(y.dtype).max
    wanted = (peak | dip) & torch.isfinite(here) & (y[middle - 1] > -most) & (y[middle + 1] < most)
    chosen = middle[wanted]
    if not len(chosen):
        return rows, y, f
    sign = torch.where(peak[wanted], 1.0, -1.0).to(f)
    more, more_y = rows[chosen], _highest(line, rows[chosen], y[chosen - 1], y[chosen + 1], sign)
    all_rows, all_y = torch.cat([rows, more]), torch.cat([y, more_y])
    all_f = torch.cat([f, line.log_density(more, more_y)])
    order = all_y.argsort(stable=True)
    order = order[all_rows[order].argsort(stable=True)]
    return all_rows[order], all_y[order], all_f[order]


def _highest(line: _Line, rows: Tensor, a: Tensor, b: Tensor, sign: Tensor) -> Tensor:
    """Where sign * log density is highest between a and b, by golden sections."""
    c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    at_c, at_d = (sign * line.log_density(rows, v) for v in (c, d))
    for _ in range(NARROWINGS):
        left = at_c > at_d
        a, b = torch.where(left, a, c), torch.where(left, d, b)
        new = torch.where(left, b - GOLDEN * (b - a), a + GOLDEN * (b - a))
        at_new = sign * line.log_density(rows, new)
        c, d = torch.where(left, new, d), torch.where(left, c, new)
        at_c, at_d = torch.where(left, at_new, at_d), torch.where(left, at_c, at_new)
    return torch.where(at_c > at_d, c, d)


def _crossed(line: _Line, rows: Tensor, inner: Tensor, outer: Tensor, outward: int) -> Tensor:
    """The last number from ``inner``, which belongs to the set, towards ``outer``, which does not, that belongs to it."""
    q = line.q[rows].to(inner)
    a, b = inner.clone(), outer.clone()
    at_a, at_b = (line.log_density(rows, v) + q for v in (a, b))  # at least 0, and below 0
    for k in range(SECANTS):
        secant = (a * at_b - b * at_a) / (at_b - at_a) if k % 3 else torch.full_like(a, torch.nan)
        half = number(between(place(a), place(b)), a.dtype)
        strictly = (torch.minimum(a, b) < secant) & (secant < torch.maximum(a, b))
        trial = torch.where(strictly, secant, half)
        value = line.log_density(rows, trial) + q
        belongs = line.inside(rows, value - q)
        a, b = torch.where(belongs, trial, a), torch.where(belongs, b, trial)
        at_a = torch.where(
            belongs, value, 0.5 * at_a
        )  # the end that stays is weighed down: the Illinois rule
        at_b = torch.where(belongs, 0.5 * at_b, value)

    def holds(v: Tensor, some: Tensor | slice) -> Tensor:
        within = outward * v < outward * outer[some]
        reached = outward * v <= outward * inner[some]
        return reached | (within & line.inside(rows[some], line.log_density(rows[some], v)))

    return last_inside(holds, a, outward)


def _region(
    q: Tensor,
    unknown: Tensor,
    rows: Tensor,
    y: Tensor,
    high: Tensor,
    crossed: Tensor,
    entering: Tensor,
    ends: Tensor,
    level: float,
) -> Region:
    n, inf = len(q), math.inf
    pieces: list[list[tuple[float, float]]] = [[] for _ in range(n)]
    first = torch.searchsorted(rows, torch.arange(n, device=rows.device))
    opened = [-inf if begins else None for begins in high[first].tolist()]
    order = sorted(zip(crossed.tolist(), ends.tolist(), (~entering).tolist(), strict=True))
    for row, end, leaving in order:
        start = opened[row]
        if not leaving:
            opened[row] = end
        elif start is not None:
            pieces[row].append((start, end))
            opened[row] = None
    for row, start in enumerate(opened):
        if start is not None:
            pieces[row].append((start, inf))
    for row in torch.nonzero(torch.isposinf(q)).flatten().tolist():
        pieces[row] = [(-inf, inf)]
    lower, upper = (
        torch.tensor([p[k][k] if p else sign * inf for p in pieces], dtype=y.dtype, device=y.device)
        for k, sign in ((0, 1.0), (-1, -1.0))
    )
    lower = torch.where(torch.isnan(q) | unknown, torch.nan, lower)
    several = any(len(p) > 1 for p in pieces)
    return Region(level, "", lower, upper, pieces=tuple(map(tuple, pieces)) if several else None)
