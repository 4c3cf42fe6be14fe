"""Starts of the periods and frequencies of waves, at the peaks of the periodogram.

The density of a period has a mode wherever some waves more or fewer fit into the rows, so that a
search ends in the mode that is nearest to its start. The periodogram of y, beside a trend, is
highest near the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..numerics.periodogram import strongest_periods
from .layout import Slice, placed

PEAKS = 6  # of the periodogram of each column
KEPT = 3  # places of each period from which a search is worth it, beside the median of its prior
#: Share of the distance, on the scale of log periods, in which a wave more fits into the rows.
WITHIN = 0.25

#: z [p] -> the log density there
Density = Callable[[Tensor], float]


def waves_of(model: Any, data: Any, slices: Mapping[str, Slice]) -> dict[str, Tensor]:
    """Return {site: columns [n, e]} of the periods and frequencies of the kernel of a model.

    There are none for rows that are read as they are needed, or that several processes share.

    Args:
        model: A model of the library, or a program, which has no kernel.
        data: Its rows, or the arguments of a program.
        slices: ``{site: Slice}``; sites that a number fixes are not among them.
    """
    kernel = model.covariance if data.is_table else None
    if kernel is None or data.streamed or not (data.team.alone and data.workers.alone):
        return {}
    named = {}
    read = model.covariance_columns(data.d)
    for name, columns in kernel.waves(data.X[:, read]).items():
        # behind the one word that stands for the kernel: "kernel", or "variogram"
        site = next((s for s in slices if s.partition(".")[2] == name), None)
        if site is not None:
            named[site] = columns
    return named


def starts_of_waves(
    waves: Mapping[str, Tensor],
    y: Tensor,
    slices: Mapping[str, Slice],
    z: Tensor,
    density: Density,
) -> Tensor:
    """Return starts z [k, p], the one of highest density first.

    Site by site, the value of highest density is taken among that of z and the peaks of the
    periodogram. The next best values of each site are starts too, and so is z.

    Args:
        waves: See ``waves_of``.
        y: The targets [n], or [n, m] of several outputs.
        slices: ``{site: Slice}``.
        z: The start that the priors give, [p].
        density: The log density at a point.
    """
    best, tried = z, {0: (z, _finite(density(z)))}
    alternatives: list[tuple[Tensor, float]] = []
    height = tried[0][1]
    for site, columns in waves.items():
        here = [(best, height)]
        for value in _values(site, columns, y, slices):
            point = placed(slices, best, {site: value})
            here.append((point, _finite(density(point))))
        here.sort(key=lambda pair: -pair[1])
        (best, height), others = here[0], here[1:]
        alternatives += others[: KEPT - 1]
    alternatives.sort(key=lambda pair: -pair[1])
    points = [best, *(point for point, _ in alternatives), z]
    distinct = [p for i, p in enumerate(points) if not any(torch.equal(p, q) for q in points[:i])]
    return torch.stack(distinct)


def reach_of_waves(
    waves: Mapping[str, Tensor], slices: Mapping[str, Slice], z: Tensor, reach: Tensor
) -> Tensor:
    """Return how far chains may start from z, [p]: no farther than a mode of a period is wide."""
    reach = reach.clone()
    for site, columns in waves.items():
        s = slices[site]
        span = float((columns.max(0).values - columns.min(0).values).max())
        value = s.transform(s.of(z)).reshape(-1)
        frequency = value if s.event else 1.0 / value
        width = (WITHIN / (frequency * span).clamp_min(1e-300)).clamp_max(1.0)
        own = slice(s.start, s.stop)
        reach[own] = torch.minimum(reach[own], width.to(reach))
    return reach


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _values(site: str, columns: Tensor, y: Tensor, slices: Mapping[str, Slice]) -> list[Tensor]:
    """Return values of a period, or the frequencies of all components, to try."""
    target = y.reshape(len(y), -1)[:, 0].double().cpu().numpy()
    X = columns.detach().double().cpu().numpy()
    event = slices[site].event
    count = max(PEAKS, event[0]) if event else PEAKS
    periods = []
    for k in range(X.shape[1]):
        others = X[:, [j for j in range(X.shape[1]) if j != k]]
        periods.append(strongest_periods(X[:, k], target, count, others).tolist())
    if not event:
        strongest = [each[0] for each in periods if each]
        # a wave that is no sine has its highest peak at a part of its period too
        every = [p for each in periods for p in each] + [2 * p for p in strongest]
        return [torch.tensor(p, dtype=torch.float64) for p in every]
    if not all(periods):
        return []
    frequencies = torch.ones(event, dtype=torch.float64)
    for k, each in enumerate(periods):
        for q in range(event[0]):
            frequencies[q, k] = 1.0 / each[q % len(each)]
    return [frequencies]
