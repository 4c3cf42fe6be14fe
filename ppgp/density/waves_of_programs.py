"""Starts of the frequencies and periods in a user's program, by profiles of its density.

A program with the sine of a site times data has a mode wherever some waves more or fewer fit into
the data. Along each such site the density is profiled: at places so near that no wave is missed,
all other sites climb a few steps, side by side, and searches begin at the best of the ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..runtime.seeding import standard_normal

#: Quantiles of the prior between which a profile runs, in so many pieces at least.
LOWEST, HIGHEST, PIECES = 0.005, 0.995, 16
TURN = 2 * math.pi / 3  # of the last row against the first, between two places of a profile
LEAST_TURNS = 2 * math.pi  # in all: with fewer, there is one mode, or few
ROWS = 4  # fewer angles are those of a few phases
SITES = 12  # at most, whose angles are followed
PLACES = 256  # at most, of one profile
ABREAST = 64  # places that one graph evaluates at once
WORK = 4_000_000  # angles times places, at most
FIRST_STEPS, MORE_STEPS = 10, 20  # evaluations of all places, and of the best of them
BEST = 32
PAIRS = 6  # of steps and changes of slopes that L-BFGS remembers
#: Of the reach of the priors: climbs begin beside the medians, which may be saddles, and far away.
AWAY = (0.5, 1.5)
BESIDE = 0.1  # where a wave was found already, which stays
KEPT = 3  # ends of profiles from which a search is worth it
APART = 0.5  # of the unconstrained scale: nearer ends are one mode
FAR_BELOW = 10.0  # nats: an end of a profile so far below the best is no such place
SUFFICIENT, LEAST_STEP = 1e-4, 1e-10

#: z [k, p] -> values [k], gradients [k, p], where k is ``ABREAST``
Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]


class Angles(TorchFunctionMode):
    """Keep the arguments of sines and cosines that depend on a site.

    Attributes:
        found: These arguments, in the order of the calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WAVES and isinstance(args[0], Tensor):
            angle = args[0]
            if angle.requires_grad and angle.numel() >= ROWS:
                self.found.append(angle)
        return func(*args, **(kwargs or {}))


WAVES = {torch.sin, torch.cos, Tensor.sin, Tensor.cos}


@dataclass(frozen=True, eq=False)
class Profile:
    """Where a profile along one number is taken.

    Attributes:
        index: The number, an entry of z.
        places: [k], its values there.
    """

    index: int
    places: Tensor


def profiles(
    angles_at: Callable[[Tensor], list[Tensor]], quantiles: Tensor, z: Tensor
) -> list[Profile]:
    """Return the profiles along numbers that turn waves, the one with most turns first.

    Args:
        angles_at: The arguments of sines at z [p], with derivatives by z.
        quantiles: [``PIECES`` + 1, p], of the priors on the unconstrained scale; NaN if unknown.
        z: The medians, [p].
    """
    at = z.detach().clone().requires_grad_()
    angles = [a for a in angles_at(at) if a.numel() <= WORK // ABREAST]
    if not angles:
        return []
    slopes = torch.zeros_like(z)
    for a in angles:
        weight = torch.linspace(-1.0, 2.0, a.numel(), dtype=a.dtype, device=a.device)
        (slope,) = torch.autograd.grad(
            (a.reshape(-1) * weight).sum(), at, retain_graph=True, materialize_grads=True
        )
        slopes += slope.abs().to(slopes)
    slopes = torch.where(quantiles.isfinite().all(0), slopes.nan_to_num(0.0), 0.0)
    turning = [int(i) for i in slopes.argsort(descending=True)[:SITES] if float(slopes[i]) > 0]
    most = min(PLACES, WORK // max(a.numel() for a in angles))
    found = []
    for i in turning:
        turns = _turns(angles_at, quantiles[:, i], z, i)
        if turns is None or not float(turns.sum()) > LEAST_TURNS:
            continue  # a phase turns all rows alike
        total = float(turns.sum())
        turns = turns * min(1.0, most * TURN / total)
        pieces = (turns / TURN).ceil().clamp_min(1.0).long().tolist()
        ends = zip(quantiles[:-1, i], quantiles[1:, i], pieces, strict=True)
        places = [a + (b - a) * (torch.arange(m).to(z) + 0.5) / m for a, b, m in ends]
        found.append((total, Profile(i, torch.cat(places))))
    return [profile for _, profile in sorted(found, key=lambda pair: -pair[0])]


def _turns(
    angles_at: Callable[[Tensor], list[Tensor]], along: Tensor, z: Tensor, i: int
) -> Tensor | None:
    """Return by how much rows turn against one another from each place to the next.

    They are None where the sines at two places are not of the same things.
    """
    before: list[Tensor] | None = None
    turns = []
    for value in along:
        there = z.detach().clone()
        there[i] = value
        angles = [a.detach() for a in angles_at(there.requires_grad_())]
        if before is not None:
            if [a.shape for a in angles] != [a.shape for a in before]:
                return None
            moved = [a - b for a, b in zip(angles, before, strict=True)]
            turns.append(max(float(m.max() - m.min()) for m in moved))
        before = angles
    found = torch.tensor(turns, dtype=torch.float64)
    return found if bool(found.isfinite().all()) else None


def starts_of_profiles(
    along: list[Profile], z: Tensor, reach: Tensor, evaluate: Evaluate
) -> tuple[Tensor, Tensor]:
    """Return starts z [k, p], the one of highest density first, and how far chains may go, [p].

    Site by site, the best end of a profile is where the next profile begins, so that the second
    wave is looked for in what the first one leaves.

    Args:
        along: The profiles.
        z: The medians of the priors, [p].
        reach: How far the priors reach, [p].
        evaluate: The density.
    """
    generator = torch.Generator().manual_seed(0)
    reach = reach.clone()
    ends: list[tuple[float, Tensor]] = []
    best = z
    for number, profile in enumerate(along):
        places = profile.places.to(z)
        copies = []
        for away in (BESIDE, *AWAY) if number else AWAY:
            moved = best + away * reach * standard_normal(generator, len(places), len(z)).to(z)
            moved[:, profile.index] = places
            copies.append(moved)
        heights, points = _climbed(evaluate, torch.cat(copies), profile.index)
        order = heights.argsort(descending=True, stable=True)
        width = float((places[1:] - places[:-1]).abs().max())
        least = torch.full_like(z, APART)  # of two modes, in one number at least
        least[profile.index] = 1.5 * width
        kept: list[Tensor] = []
        for j in order.tolist():
            if not math.isfinite(float(heights[j])) or len(kept) == KEPT:
                break
            if all(float(((points[j] - other).abs() / least).max()) > 1 for other in kept):
                kept.append(points[j])
                ends.append((float(heights[j]), points[j]))
        if kept:
            best = kept[0]
            reach[profile.index] = min(float(reach[profile.index]), width)
    ends.sort(key=lambda pair: -pair[0])
    points = [point for height, point in ends[:KEPT] if height > ends[0][0] - FAR_BELOW]
    return torch.stack([*points, z]), reach


def ends_of_many(z: Tensor, reach: Tensor, evaluate: Evaluate) -> tuple[Tensor, Tensor]:
    """Return heights [k], the best first, and ends [k, p] of climbs from places around the medians.

    Args:
        z: The medians of the priors, [p].
        reach: How far the priors reach, [p].
        evaluate: The density.
    """
    generator = torch.Generator().manual_seed(0)
    begun = z + max(AWAY) * reach * standard_normal(generator, ABREAST, len(z)).to(z)
    heights, ends = _climbed(evaluate, begun)
    order = heights.argsort(descending=True, stable=True)
    return heights[order], ends[order]


def _climbed(evaluate: Evaluate, z: Tensor, fixed: int | None = None) -> tuple[Tensor, Tensor]:
    """Return heights [k] and ends [k, p] of climbs from z [k, p], one number of which is fixed.

    All climb some steps by L-BFGS (Liu & Nocedal 1989), and the best of them more, when that number
    is free too.
    """
    free = torch.ones_like(z[0])
    if fixed is not None:
        free[fixed] = 0.0
    parts = [_climb(evaluate, part, free, FIRST_STEPS) for part in z.split(ABREAST)]
    heights, ends = (torch.cat(each) for each in zip(*parts, strict=True))
    best = heights.argsort(descending=True, stable=True)[:BEST]
    heights, ends = _climb(evaluate, ends[best], free, MORE_STEPS)
    return _climb(evaluate, ends, torch.ones_like(free), MORE_STEPS)


def _climb(evaluate: Evaluate, z: Tensor, free: Tensor, evaluations: int) -> tuple[Tensor, Tensor]:
    """Return heights [k] and ends [k, p] after some evaluations, with a backtracking search."""

    def at(points: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([points, points[-1:].expand(ABREAST - len(points), -1)])
        values, slopes = (part[: len(points)] for part in evaluate(whole))
        fine = values.isfinite() & slopes.isfinite().all(1)
        values = torch.where(fine, values, torch.full_like(values, -math.inf))
        return values, torch.where(fine[:, None], slopes, torch.zeros_like(slopes)) * free

    heights, slopes = at(z)
    steps: list[Tensor] = []
    bends: list[Tensor] = []
    way = _first_way(slopes)
    length = torch.ones_like(heights)
    for _ in range(evaluations):
        there = z + length[:, None] * way
        found, its_slopes = at(there)
        rise = (slopes * way).sum(1)
        taken = found >= heights + SUFFICIENT * length * rise
        taken &= found.isfinite()
        step = torch.where(taken[:, None], there - z, torch.zeros_like(z))
        bend = torch.where(taken[:, None], slopes - its_slopes, torch.zeros_like(z))
        z = torch.where(taken[:, None], there, z)
        heights = torch.where(taken, found, heights)
        slopes = torch.where(taken[:, None], its_slopes, slopes)
        steps, bends = [*steps, step][-PAIRS:], [*bends, bend][-PAIRS:]
        way = torch.where(taken[:, None], _way(slopes, steps, bends), way)
        length = torch.where(taken, torch.ones_like(length), 0.3 * length).clamp_min(LEAST_STEP)
    return heights, z


def _first_way(slopes: Tensor) -> Tensor:
    """Return steps uphill of a length of .3 at most."""
    return slopes * (0.3 / slopes.norm(dim=1, keepdim=True).clamp_min(0.3))


def _way(slopes: Tensor, steps: list[Tensor], bends: list[Tensor]) -> Tensor:
    """Return the steps of L-BFGS [k, p]. Nocedal & Wright (2006), algorithm 7.4."""
    q = slopes.clone()
    scale = torch.full_like(q[:, :1], math.nan)
    kept = []
    for s, y in zip(reversed(steps), reversed(bends), strict=True):
        both = (s * y).sum(1, keepdim=True)
        fine = both > 1e-10 * (y * y).sum(1, keepdim=True)  # 0 of those that took no step
        weight = torch.where(fine, 1 / torch.where(fine, both, torch.ones_like(both)), 0.0)
        a = weight * (s * q).sum(1, keepdim=True)
        q = q - a * y
        kept.append((s, y, weight, a))
        own = both / (y * y).sum(1, keepdim=True).clamp_min(1e-300)
        scale = torch.where(scale.isnan() & fine, own, scale)
    plain = 0.3 / slopes.norm(dim=1, keepdim=True).clamp_min(0.3)
    q = q * torch.where(scale.isnan(), plain, scale)
    for s, y, weight, a in reversed(kept):
        q = q + s * (a - weight * (y * q).sum(1, keepdim=True))
    uphill = (q * slopes).sum(1, keepdim=True) > 0
    q = torch.where(uphill & q.isfinite().all(1, keepdim=True), q, plain * slopes)
    return q * (3.0 / q.norm(dim=1, keepdim=True).clamp_min(3.0))  # no longer than 3
