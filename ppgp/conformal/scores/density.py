"""Where the predictive density is highest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Normal

from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score, eased, interval

NODES = (1e-9, 1e-6, 1e-4, 1e-3, *(k / 100 for k in range(1, 100)), 1 - 1e-3, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9)
EVEN = 256  # points, evenly spaced over the law's width: a gap of the set may hold next to no probability
BISECTIONS = 60


@dataclass(frozen=True)
class Density(Score):
    """-log p(y): the set where the predictive density is at least exp(-q), a union of intervals where that has several modes.

    The split form of highest-predictive-density sets; Izbicki, Shimizu & Stern (2022). One Normal a row: closed form. A
    mixture: the ends are found by bisection between its percentiles and evenly spaced points, so that a mode or a gap is missed
    only where it holds less than 1 % and is narrower than 1/256 of the law.
    """

    kinds = ("continuous",)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return -prediction.log_prob(y)

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        q = eased(q.to(prediction.mean)).expand(len(prediction))
        if isinstance(prediction.distribution, Normal) and prediction.draws == 1:
            variance = prediction.variance
            square = 2 * variance * (q - 0.5 * (2 * math.pi * variance).log())
            half = square.sqrt()  # NaN where the peak itself is too low: an empty set
            return interval(prediction.mean - half, prediction.mean + half, level)
        return _union(prediction, q, level)


def _union(prediction: Prediction, q: Tensor, level: float) -> Region:
    nodes = torch.stack([prediction.quantile(p) for p in NODES])
    between = torch.linspace(0, 1, EVEN + 2).to(nodes)[1:-1, None]
    nodes = torch.cat([nodes, nodes[2] + between * (nodes[-3] - nodes[2])]).sort(0).values
    step = (nodes[-1] - nodes[0]).clamp_min(torch.finfo(nodes.dtype).tiny)
    for _ in range(60):  # outwards until the density is too low on both sides
        outer = torch.stack([nodes[0] - step, nodes[-1] + step])
        inside = -prediction.log_prob(outer[0]) <= q, -prediction.log_prob(outer[1]) <= q
        nodes = torch.cat([outer[:1], nodes, outer[1:]])
        if not bool(((inside[0] | inside[1]) & torch.isfinite(q)).any()):
            break
        step = 2 * step
    high = torch.stack([-prediction.log_prob(x) <= q for x in nodes])
    enters, leaves = ~high[:-1] & high[1:], high[:-1] & ~high[1:]
    crossing = enters | leaves
    low, up = nodes[:-1].clone(), nodes[1:].clone()
    interior = high[:-1]  # the left end of each cell
    which = torch.nonzero(crossing)
    a, b = low[crossing], up[crossing]
    rows, start = which[:, 1], interior[crossing]
    part = prediction[rows] if len(rows) else None
    for _ in range(BISECTIONS if part is not None else 0):
        middle = 0.5 * (a + b)
        same = (-part.log_prob(middle) <= q[rows]) == start  # type: ignore[union-attr]
        a, b = torch.where(same, middle, a), torch.where(same, b, middle)
    ends = torch.where(start, a, b)  # the side on which the density is high enough
    pieces: list[list[list[float]]] = [[] for _ in range(len(q))]
    for row, entering, end in sorted(
        zip(rows.tolist(), (~start).tolist(), ends.tolist(), strict=True), key=lambda t: (t[0], t[2])
    ):
        if entering:
            pieces[row].append([end, math.inf])
        elif pieces[row]:
            pieces[row][-1][1] = end
    for row in torch.nonzero(torch.isposinf(q)).flatten().tolist():
        pieces[row] = [[-math.inf, math.inf]]
    lower = torch.tensor([p[0][0] if p else math.nan for p in pieces], dtype=q.dtype, device=q.device)
    upper = torch.tensor([p[-1][1] if p else math.nan for p in pieces], dtype=q.dtype, device=q.device)
    several = any(len(p) > 1 for p in pieces)
    return Region(level, "", lower, upper, pieces=tuple(tuple((x, y) for x, y in p) for p in pieces) if several else None)
